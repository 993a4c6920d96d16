#include <cstdlib>
#include <cstring>

#include "calibrate/processes.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/processes.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {
namespace {

constexpr char kDone = '+', kFailed = '-';
using Length = std::uint64_t;  // before each text

std::string done_or_failed(const std::function<std::string(int, int)>& work, const plimsoll_mpi_place& place) {
  try {
    return kDone + work(place.rank, place.ranks);
  } catch (const std::exception& error) {
    return kFailed + std::string(error.what());
  }
}

/// Every process's text in every process: all are padded to the longest, in whole floats.
std::vector<std::string> all_gathered(calibrate::Processes& processes, const std::string& text) {
  const auto ranks = static_cast<std::size_t>(processes.place().ranks);
  const double longest = processes.largest(static_cast<double>(text.size()));
  const auto each = static_cast<std::size_t>(round_up(static_cast<std::int64_t>(longest) + static_cast<std::int64_t>(sizeof(Length)), 4));
  if (each * ranks > std::size_t{1} << 31U) fail("the answers of all processes are larger than 2 GiB", "mpirun", "take fewer processes");
  std::vector<char> own(each * ranks), all(each * ranks);
  const Length length = text.size();
  std::memcpy(own.data(), &length, sizeof length);
  std::memcpy(own.data() + sizeof length, text.data(), text.size());
  processes.collective(processes.everybody(), CollectiveKind::all_gather, own.data(), all.data(), static_cast<std::int64_t>(all.size()));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const char* from = all.data() + rank * each;
    Length its = 0;
    std::memcpy(&its, from, sizeof its);
    texts.emplace_back(from + sizeof its, its);
  }
  return texts;
}

}  // namespace

bool among_processes() {
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (const char* value = std::getenv(size); value != nullptr && std::atoi(value) > 1) return true;
  return false;
}

std::vector<std::string> gather_texts(const std::function<std::string(int rank, int ranks)>& work) {
  calibrate::Processes processes;
  processes.take_processors();
  std::vector<std::string> texts = all_gathered(processes, done_or_failed(work, processes.place()));
  if (processes.place().rank != 0) return {};
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const char how = texts[rank].front();
    texts[rank].erase(0, 1);
    if (how == kFailed) fail(texts[rank], "process " + std::to_string(rank));
  }
  return texts;
}

}  // namespace plimsoll
