// The snapshot is read back by a small unpickler of its own, written from the documentation of the pickle opcodes.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "plimsoll/report.hpp"

namespace plimsoll {
namespace {

using nlohmann::json;

class Unpickler {
 public:
  explicit Unpickler(const std::string& bytes) : bytes_(bytes) {}

  json read() {
    if (bytes_.substr(0, 2) != std::string("\x80\x02")) throw std::runtime_error("not protocol 2");
    for (at_ = 2; at_ < bytes_.size();) {
      const char opcode = bytes_[at_++];
      if (opcode == '.') return stack_.at(0);
      step(opcode);
    }
    throw std::runtime_error("no end");
  }

 private:
  void step(char opcode) {
    switch (opcode) {
      case 'J':
        return stack_.push_back(static_cast<std::int32_t>(number(4)));
      case '\x8a':
        return stack_.push_back(static_cast<std::int64_t>(number(static_cast<int>(number(1)))));
      case 'X': {
        const std::size_t size = number(4);
        stack_.push_back(bytes_.substr(at_, size));
        at_ += size;
        return;
      }
      case '\x88':
        return stack_.push_back(true);
      case '\x89':
        return stack_.push_back(false);
      case '}':
        return stack_.push_back(json::object());
      case ']':
        return stack_.push_back(json::array());
      case '(':
        return marks_.push_back(stack_.size());
      case 'u':
        return set_items();
      case 'e':
        return append();
      case '\x86': {
        const json pair = {stack_[stack_.size() - 2], stack_.back()};
        stack_.resize(stack_.size() - 2);
        return stack_.push_back(pair);
      }
      case 'r':
        memo_[number(4)] = stack_.back();
        return;
      case 'j':
        return stack_.push_back(memo_.at(number(4)));
      default:
        throw std::runtime_error("unknown opcode");
    }
  }
  std::uint64_t number(int size) {
    std::uint64_t value = 0;
    for (int i = 0; i < size; ++i) value |= std::uint64_t{static_cast<unsigned char>(bytes_.at(at_++))} << (8 * i);
    return value;
  }
  std::vector<json> above_mark() {
    const std::vector<json> values(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }
  void set_items() {
    const auto values = above_mark();
    for (std::size_t i = 0; i < values.size(); i += 2) stack_.back()[values[i].get<std::string>()] = values.at(i + 1);
  }
  void append() {
    for (const json& value : above_mark()) stack_.back().push_back(value);
  }

  const std::string& bytes_;
  std::size_t at_ = 0;
  std::vector<json> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, json> memo_;
};

/// A weight that stays and an activation that goes, one step.
StepProgram program() {
  StepProgram program;
  program.labels = {"", "weight", "mlp"};
  program.init = {{InstructionKind::alloc, 0, Category::parameter, 0, 3 << 20, 1}};
  program.step = {{InstructionKind::alloc, 0, Category::activation, 1, 1000, 2}, {InstructionKind::free, 0, {}, 1, 0, 0}};
  return program;
}

// The large segment of 20 MiB holds the weight of 3 MiB and a free rest; the small one of 2 MiB is free again.
TEST(MemoryViz, HoldsSegmentsAndTrace) {
  PlayMemoryOptions options;
  options.steps = 1;
  const json snapshot = Unpickler(to_memory_viz(record_memory(program(), options), program().labels)).read();
  const json& segments = snapshot.at("segments");
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].at("total_size"), 20 << 20);
  EXPECT_EQ(segments[0].at("segment_type"), "large");
  EXPECT_EQ(segments[0].at("allocated_size"), 3 << 20);
  EXPECT_EQ(segments[0].at("blocks").size(), 2u);
  EXPECT_EQ(segments[0].at("blocks")[0].at("state"), "active_allocated");
  EXPECT_EQ(segments[0].at("blocks")[0].at("frames")[0].at("name"), "weight");
  EXPECT_EQ(segments[0].at("blocks")[1].at("state"), "inactive");
  EXPECT_EQ(segments[1].at("active_size"), 0);
  EXPECT_EQ(segments[1].at("segment_pool_id"), json::array({0, 0}));

  std::vector<std::string> actions;
  const json& trace = snapshot.at("device_traces")[0];
  for (const json& event : trace) actions.push_back(event.at("action"));
  EXPECT_EQ(actions, (std::vector<std::string>{"segment_alloc", "alloc", "segment_alloc", "alloc", "free_requested", "free_completed"}));
  EXPECT_EQ(trace[3].at("size"), 1000);
  EXPECT_EQ(trace[3].at("frames")[0].at("name"), "mlp");
  EXPECT_EQ(trace[3].at("frames")[1].at("name"), std::string(name_of(Category::activation)));
  EXPECT_EQ(trace[3].at("addr"), trace[5].at("addr"));
  EXPECT_EQ(trace[0].at("addr"), segments[0].at("address"));
}

TEST(MemoryViz, TellsTheAllocationThatFailed) {
  PlayMemoryOptions options;
  options.capacity = Bytes(20 << 20);
  const json snapshot = Unpickler(to_memory_viz(record_memory(program(), options), program().labels)).read();
  const json& last = snapshot.at("device_traces")[0].back();
  EXPECT_EQ(last.at("action"), "oom");
  EXPECT_EQ(last.at("size"), 1000);
  EXPECT_EQ(last.at("frames")[0].at("name"), "mlp");
}

}  // namespace
}  // namespace plimsoll
