// Random traces played through PyTorch's own allocator (tests/memory/data/*.txt, each naming its version): ours must agree on
// allocated and reserved bytes after every operation, and on the number of retries.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "memory/caching_allocator.hpp"

namespace plimsoll::memory {
namespace {

struct GoldenTrace {
  CachingAllocator::Options options;
  int retries = 0;
  std::vector<std::string> operations;
};

void read_setting(GoldenTrace& trace, const std::string& key, std::istringstream& value) {
  AllocatorSettings& settings = trace.options.settings;
  std::string text;
  value >> text;
  if (key == "capacity")
    trace.options.capacity = std::stoll(text);
  else if (key == "total")
    trace.options.total = std::stoll(text);
  else if (key == "expandable_segments")
    settings.expandable_segments = text == "True";
  else if (key == "max_split_size_mb")
    settings.max_split_size = Bytes(std::stoll(text) << 20);
  else if (key == "roundup_power2_divisions")
    settings.roundup_power2_divisions = std::stoi(text);
  else if (key == "garbage_collection_threshold")
    settings.garbage_collection_threshold = std::stod(text);
  else if (key == "per_process_memory_fraction")
    settings.per_process_memory_fraction = std::stod(text);
  else if (key == "retries")
    trace.retries = std::stoi(text);
  else
    FAIL() << "unknown setting " << key;
}

GoldenTrace read_trace(const std::string& name) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/memory/data/" + name + ".txt");
  EXPECT_TRUE(file) << name;
  GoldenTrace trace;
  bool header = true;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) header = false;
    if (line.empty() || line[0] == '#') continue;
    if (!header) {
      trace.operations.push_back(line);
      continue;
    }
    std::istringstream words(line);
    std::string key;
    words >> key;
    read_setting(trace, key, words);
  }
  return trace;
}

/// Does one operation; its numbers are taken from `words`, which is left before the expected bytes.
void operate(CachingAllocator& allocator, std::vector<BlockId>& tensors, char operation, std::istringstream& words) {
  std::int64_t first = 0, second = 0;
  switch (operation) {
    case 'a':
      words >> first >> second;
      tensors.push_back(allocator.allocate(second, static_cast<StreamId>(first)));
      ASSERT_NE(tensors.back(), kNoBlock);
      break;
    case 'o':
      words >> first >> second;
      ASSERT_EQ(allocator.allocate(second, static_cast<StreamId>(first)), kNoBlock);
      break;
    case 'f':
      words >> first;
      allocator.free(tensors.at(static_cast<std::size_t>(first)));
      break;
    case 'r':
      words >> first >> second;
      allocator.record_stream(tensors.at(static_cast<std::size_t>(first)), static_cast<StreamId>(second));
      break;
    case 'e':
      allocator.empty_cache();
      break;
    default:
      FAIL() << operation;
  }
}

class GoldenTraces : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTraces, AgreeAfterEveryOperation) {
  const GoldenTrace trace = read_trace(GetParam());
  ASSERT_GT(trace.operations.size(), 500u);
  CachingAllocator allocator(trace.options);
  std::vector<BlockId> tensors;
  for (std::size_t i = 0; i < trace.operations.size(); ++i) {
    SCOPED_TRACE(std::to_string(i) + ": " + trace.operations[i]);
    std::istringstream words(trace.operations[i]);
    char operation = 0;
    words >> operation;
    ASSERT_NO_FATAL_FAILURE(operate(allocator, tensors, operation, words));
    std::int64_t allocated = 0, reserved = 0;
    words >> allocated >> reserved;
    ASSERT_EQ(allocator.allocated(), allocated * 512);
    ASSERT_EQ(allocator.reserved(), reserved * 2 * 1048576);
  }
  EXPECT_EQ(allocator.retries(), trace.retries);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenTraces,
                         testing::Values("default", "streams", "small_sizes", "full", "expandable", "expandable_full", "max_split",
                                         "max_split_full", "power2", "garbage", "expandable_max_split"),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace plimsoll::memory
