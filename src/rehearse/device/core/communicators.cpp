#include "communicators.hpp"

#include <deque>
#include <map>

#include "memory.hpp"
#include "settings.hpp"

namespace plimsoll::device {
namespace {

struct Group {
  int depth = 0;
  std::uint32_t number = 0;
};
thread_local Group group;

struct State {
  std::map<int, std::deque<Membership>> expected;  ///< of the next splits by colour, first told first
  std::uint32_t next_id = 1, next_group = 1;
};
State& state() {
  static State* const once = new State;
  return *once;
}

void note(const Communicator& c, record::CommunicatorAction action) {
  record::Communicator event{};
  event.id = c.id;
  event.parent = c.parent;
  event.size = c.size;
  event.rank = c.rank;
  event.color = c.color;
  event.key = c.key;
  event.unique_id = c.unique_id;
  event.action = action;
  event.name = c.name;
  machine().write(record::Kind::communicator, c.device, event);
}

Communicator* make(const Communicator& as, const char* name, record::CommunicatorAction action) {
  const std::uint64_t bytes = settings().communicator_bytes;
  if (bytes > 0 && take(as.device, static_cast<std::int64_t>(bytes)) != Status::ok) return nullptr;
  auto* made = new Communicator(as);
  made->id = state().next_id++;
  made->taken_bytes = bytes;
  if (name != nullptr) made->name = machine().recorder.intern(name);
  note(*made, action);
  return made;
}

}  // namespace

Communicator* make_communicator(const Membership& membership) {
  const auto held = lock();
  Communicator as;
  as.size = membership.size;
  as.rank = membership.rank;
  as.unique_id = membership.unique_id;
  as.device = thread_state().device;
  return make(as, membership.name, record::CommunicatorAction::init);
}

Communicator* split(const Communicator& parent, int color, int key, const char* name) {
  const auto held = lock();
  Communicator as;
  as.parent = parent.id;
  as.device = parent.device;
  as.color = color;
  as.key = key;
  if (key >= 0) as.rank = key;  // frameworks number the members of a part by their keys
  constexpr int kAnyColor = -1;
  for (int told_of : {color, kAnyColor}) {
    const auto told = state().expected.find(told_of);
    if (told == state().expected.end()) continue;
    as.size = told->second.front().size;
    as.rank = told->second.front().rank;
    told->second.pop_front();
    if (told->second.empty()) state().expected.erase(told);
    break;
  }
  return make(as, name, record::CommunicatorAction::split);
}

Communicator* shrink(const Communicator& parent, int excluded, const char* name) {
  const auto held = lock();
  Communicator as;
  as.parent = parent.id;
  as.device = parent.device;
  if (parent.size > excluded) as.size = parent.size - excluded;
  return make(as, name, record::CommunicatorAction::shrink);
}

void end_communicator(Communicator* communicator, record::CommunicatorAction action) {
  const auto held = lock();
  note(*communicator, action);
  if (action == record::CommunicatorAction::finalize) return;
  if (communicator->taken_bytes > 0) take(communicator->device, -static_cast<std::int64_t>(communicator->taken_bytes));
  communicator->taken_bytes = 0;
  communicator->magic = 0;  // the handle stays recognizable as one that is gone
}

void expect_split(int color, int size, int rank) {
  const auto held = lock();
  state().expected[color].push_back({size, rank});
}

void group_start() {
  if (group.depth++ > 0) return;
  const auto held = lock();
  group.number = state().next_group++;
}

bool group_end() {
  if (group.depth == 0) return false;
  if (--group.depth == 0) group.number = 0;
  return true;
}

void collective(const CollectiveWork& work, const Communicator& communicator, Stream& stream) {
  const auto held = lock();
  Machine& m = machine();
  ++m.totals.collectives;
  record::CollectiveCall event{};
  event.stream = stream.id;
  event.communicator = communicator.id;
  event.count = work.count;
  event.bytes = work.bytes;
  event.peer = work.peer;
  event.op = work.op;
  event.type = work.type;
  event.reduction = static_cast<std::uint8_t>(work.reduction);
  event.group = group.number;
  m.write(record::Kind::collective, stream.device, event, m.issue(stream));
  if (stream.capture == nullptr) stream.collective = stream.last;
}

}  // namespace plimsoll::device
