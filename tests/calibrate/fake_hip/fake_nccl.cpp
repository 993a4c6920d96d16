// The collectives of RCCL and NCCL between processes, as far as calibrate calls them, in the same file as the driver whose devices they run
// on: through memory that the processes share. Only floats and sums; what else is asked for is ncclInvalidArgument.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "fake_device.hpp"

#define API extern "C" __attribute__((visibility("default")))

namespace fake = plimsoll::calibrate::fake;

namespace {

// nccl.h
struct UniqueId {
  char bytes[128];
};
constexpr int kSystemError = 2, kInvalidArgument = 4, kFloat = 7, kSum = 0;

constexpr std::size_t kRoom = std::size_t{16} << 20;  // of each rank; larger messages are refused
constexpr double kStart = 10e-6, kRate = 45e9;        // of modelled time: README.md

struct Meeting {
  std::atomic<int> arrived, turn;
};

struct Transfer {
  float* memory;
  std::size_t count;
  int peer;
  bool sends;
};

struct Communicator {
  int ranks, rank;
  std::byte* shared;
  std::vector<Transfer> group{};

  float* room(int of) const { return reinterpret_cast<float*>(shared + 4096 + kRoom * static_cast<std::size_t>(of)); }
  void meet() const {
    auto* meeting = reinterpret_cast<Meeting*>(shared);
    const int turn = meeting->turn.load();
    if (meeting->arrived.fetch_add(1) + 1 == ranks) {
      meeting->arrived = 0;
      meeting->turn = turn + 1;
    } else {
      while (meeting->turn.load() == turn) sched_yield();
    }
  }
};

std::vector<Communicator*> in_group;
bool grouping = false;

// Puts `sent` into the own room, waits for all, and lets `read` take what it wants from everybody's.
int exchange(Communicator& communicator, const float* from, std::size_t sent, std::function<void()> read) {
  if (sent * sizeof(float) > kRoom) return kInvalidArgument;
  fake::Device& device = fake::current();
  device.issue([&communicator, &device, from, sent, read = std::move(read)] {
    std::memcpy(communicator.room(communicator.rank), from, sent * sizeof(float));
    communicator.meet();
    read();
    communicator.meet();
    device.pass(kStart + static_cast<double>(sent * sizeof(float)) / kRate);
  });
  return 0;
}

// Sums elements first … first + count of all ranks.
void sum(const Communicator& communicator, std::size_t first, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = 0;
    for (int rank = 0; rank < communicator.ranks; ++rank) to[i] += communicator.room(rank)[first + i];
  }
}

bool floats(int type, int operation = kSum) { return type == kFloat && operation == kSum; }

}  // namespace

API int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> count{0};
  std::snprintf(id->bytes, sizeof id->bytes, "/plimsoll-fake-nccl-%d-%d", static_cast<int>(getpid()), count++);
  return 0;
}
API int ncclCommInitRank(Communicator** communicator, int ranks, UniqueId id, int rank) {
  const std::size_t bytes = 4096 + kRoom * static_cast<std::size_t>(ranks);
  const int file = shm_open(id.bytes, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return kSystemError;
  void* shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED) return kSystemError;
  *communicator = new Communicator{ranks, rank, static_cast<std::byte*>(shared)};
  (*communicator)->meet();
  if (rank == 0) shm_unlink(id.bytes);
  return 0;
}
API int ncclCommDestroy(Communicator* communicator) {
  fake::current().synchronize();
  munmap(communicator->shared, 4096 + kRoom * static_cast<std::size_t>(communicator->ranks));
  delete communicator;
  return 0;
}

API int ncclAllReduce(const float* send, float* receive, std::size_t count, int type, int operation, Communicator* c, void*) {
  if (!floats(type, operation)) return kInvalidArgument;
  return exchange(*c, send, count, [=] { sum(*c, 0, count, receive); });
}
API int ncclReduceScatter(const float* send, float* receive, std::size_t count, int type, int operation, Communicator* c, void*) {
  if (!floats(type, operation)) return kInvalidArgument;
  return exchange(*c, send, count * static_cast<std::size_t>(c->ranks),
                  [=] { sum(*c, count * static_cast<std::size_t>(c->rank), count, receive); });
}
API int ncclAllGather(const float* send, float* receive, std::size_t count, int type, Communicator* c, void*) {
  if (!floats(type)) return kInvalidArgument;
  return exchange(*c, send, count, [=] {
    for (int rank = 0; rank < c->ranks; ++rank) std::copy_n(c->room(rank), count, receive + count * static_cast<std::size_t>(rank));
  });
}
API int ncclBroadcast(const float* send, float* receive, std::size_t count, int type, int root, Communicator* c, void*) {
  if (!floats(type)) return kInvalidArgument;
  return exchange(*c, send, count, [=] { std::copy_n(c->room(root), count, receive); });
}

// A group of sends and receives of equal parts, one to and from each rank: what an all-to-all is made of.
API int ncclGroupStart() {
  grouping = true;
  return 0;
}
API int ncclSend(const float* send, std::size_t count, int type, int peer, Communicator* c, void*) {
  if (!grouping || !floats(type)) return kInvalidArgument;
  c->group.push_back({const_cast<float*>(send), count, peer, true});
  in_group.push_back(c);
  return 0;
}
API int ncclRecv(float* receive, std::size_t count, int type, int peer, Communicator* c, void*) {
  if (!grouping || !floats(type)) return kInvalidArgument;
  c->group.push_back({receive, count, peer, false});
  return 0;
}
API int ncclGroupEnd() {
  grouping = false;
  if (in_group.empty()) return 0;
  Communicator* c = in_group.front();
  in_group.clear();
  const std::vector<Transfer> transfers = std::move(c->group);
  c->group.clear();
  const std::size_t part = transfers.front().count;
  const float* first = transfers.front().memory;  // to rank 0: the parts lie one after another
  return exchange(*c, first, part * static_cast<std::size_t>(c->ranks), [=] {
    for (const Transfer& transfer : transfers)
      if (!transfer.sends) std::copy_n(c->room(transfer.peer) + part * static_cast<std::size_t>(c->rank), transfer.count, transfer.memory);
  });
}
