// Work on several threads: every item once, and answers that do not depend on which thread comes first.
#include "units/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace plimsoll {
namespace {

TEST(Threads, EveryItemIsDoneOnce) {
  std::vector<std::atomic<int>> done(1000);
  on_threads(done.size(), 4, [&](std::uint64_t item, int thread) {
    EXPECT_LT(thread, 4);
    ++done[item];
    return true;
  });
  for (const auto& each : done) EXPECT_EQ(each, 1);
}

TEST(Threads, NothingIsBegunBehindWhatIsEnough) {
  std::vector<std::uint64_t> begun;
  on_threads(10, 1, [&](std::uint64_t item, int) {
    begun.push_back(item);
    return item < 3;
  });
  EXPECT_EQ(begun, (std::vector<std::uint64_t>{0, 1, 2, 3}));
}

// Item 1 fails first, item 0 when it sees that: items are begun in order, so the first one's failure is the same on any number of threads.
TEST(Threads, OfSeveralFailuresTheFirstItemsIsThrown) {
  std::atomic<bool> failed{false};
  std::string said;
  try {
    on_threads(2, 2, [&](std::uint64_t item, int) -> bool {
      while (item == 0 && !failed) std::this_thread::yield();
      failed = true;
      throw std::runtime_error("item " + std::to_string(item));
    });
  } catch (const std::runtime_error& error) {
    said = error.what();
  }
  EXPECT_EQ(said, "item 0");
}

}  // namespace
}  // namespace plimsoll
