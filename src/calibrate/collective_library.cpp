#include "calibrate/collective_library.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

// nccl.h, the same in rccl.h
struct UniqueId {
  char bytes[128];
};
constexpr int kFloat = 7, kSum = 0;

class Nccl : public DeviceCollectives {
 public:
  Nccl(std::string name, std::unique_ptr<DynamicLibrary> library, Processes& processes, const plimsoll_mpi_group& group)
      : name_(std::move(name)), library_(std::move(library)), ranks_(group.ranks), rank_(group.rank) {
    UniqueId id{};
    if (rank_ == 0) call<UniqueId*>("ncclGetUniqueId", &id);
    processes.share(group, &id, sizeof id);
    call<void**, int, UniqueId, int>("ncclCommInitRank", &communicator_, ranks_, id, rank_);
  }
  ~Nccl() override {
    if (const auto destroy = library_->find<int(void*)>("ncclCommDestroy"); destroy && communicator_) destroy(communicator_);
  }

  std::string name() const override { return name_; }

  void run(CollectiveKind kind, void* send, void* receive, std::int64_t bytes, void* stream) override {
    const auto all = static_cast<std::size_t>(bytes / 4), part = all / static_cast<std::size_t>(ranks_);
    switch (kind) {
      case CollectiveKind::all_reduce:
        return call<const void*, void*, std::size_t, int, int, void*, void*>("ncclAllReduce", send, receive, all, kFloat, kSum,
                                                                             communicator_, stream);
      case CollectiveKind::all_gather:
        return call<const void*, void*, std::size_t, int, void*, void*>("ncclAllGather", send, receive, part, kFloat, communicator_,
                                                                        stream);
      case CollectiveKind::reduce_scatter:
        return call<const void*, void*, std::size_t, int, int, void*, void*>("ncclReduceScatter", send, receive, part, kFloat, kSum,
                                                                             communicator_, stream);
      case CollectiveKind::broadcast:
        return call<const void*, void*, std::size_t, int, int, void*, void*>("ncclBroadcast", send, receive, all, kFloat, 0, communicator_,
                                                                             stream);
      case CollectiveKind::all_to_all:
        return to_all(static_cast<float*>(send), static_cast<float*>(receive), part, stream);
      default:
        refuse(std::string(plimsoll::name_of(kind)) + " is no collective of all ranks", name_);
    }
  }

 private:
  void to_all(float* send, float* receive, std::size_t part, void* stream) {
    call<>("ncclGroupStart");
    for (int peer = 0; peer < ranks_; ++peer) {
      const std::size_t at = part * static_cast<std::size_t>(peer);
      call<const void*, std::size_t, int, int, void*, void*>("ncclSend", send + at, part, kFloat, peer, communicator_, stream);
      call<void*, std::size_t, int, int, void*, void*>("ncclRecv", receive + at, part, kFloat, peer, communicator_, stream);
    }
    call<>("ncclGroupEnd");
  }
  template <class... Types, class... Arguments>
  void call(const char* symbol, Arguments... arguments) {
    const auto function = library_->find<int(Types...)>(symbol);
    if (!function) fail(library_->name() + " lacks " + symbol, name_);
    if (const int code = function(arguments...); code != 0)
      fail(std::string(symbol) + " returns " + std::to_string(code), name_, "NCCL_DEBUG=INFO says more");
  }

  std::string name_;
  std::unique_ptr<DynamicLibrary> library_;
  int ranks_, rank_;
  void* communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceCollectives> open_device_collectives(const std::string& backend, Processes& processes,
                                                           const plimsoll_mpi_group& group) {
  const bool amd = backend == "hip";
  const std::string name = amd ? "rccl" : "nccl";
  auto library = std::make_unique<DynamicLibrary>(place_of(name));
  if (!library->loaded()) fail("no " + name + ": " + library->reason(), "--collectives", "--backend cpu measures MPI over host memory");
  return std::make_unique<Nccl>(name, std::move(library), processes, group);
}

}  // namespace plimsoll::calibrate
