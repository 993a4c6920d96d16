// How communication hides behind computation: recurrences over units, as the frameworks issue their work.
#include <algorithm>

#include "plimsoll/play.hpp"

namespace plimsoll {
namespace {
Seconds later(Seconds a, Seconds b) { return a < b ? b : a; }
}  // namespace

Seconds ddp_end(const std::vector<Seconds>& ready, const std::vector<Seconds>& reduce) {
  Seconds end;
  for (std::size_t bucket = 0; bucket < ready.size(); ++bucket) end = later(end, ready[bucket]) + reduce[bucket];
  return end;
}

/// Unit i's all-gather starts when the one before has ended and the buffer of unit i−2 has been copied out of.
Seconds fsdp_forward(const std::vector<FsdpUnit>& units) {
  Seconds gathered, computed, copied_out, copied_out_before;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const Seconds start = i >= 2 ? later(gathered, copied_out_before) : gathered;
    gathered = start + units[i].all_gather;
    copied_out_before = copied_out;
    copied_out = later(gathered, computed);
    computed = copied_out + units[i].compute;
  }
  return computed;
}

/// The backward pass begins with the all-gather of the last unit (0 when it was not resharded). At the start of unit i's computation
/// the all-gather of i−1 is issued; at its end its reduce-scatter is, and the computation waits there for the reduce-scatter of i+1.
Seconds fsdp_backward(const std::vector<FsdpUnit>& units) {
  if (units.empty()) return {};
  Seconds queue = units.back().all_gather, gathered = queue, computed, reduced;
  for (std::size_t i = units.size(); i-- > 0;) {
    const Seconds start = later(computed, gathered);
    if (i > 0) gathered = queue = later(queue, start) + units[i - 1].all_gather;
    const Seconds end = start + units[i].compute;
    computed = later(end, reduced);
    queue = reduced = later(queue, end) + units[i].reduce_scatter;
  }
  return later(computed, reduced);
}

Seconds exposed(Seconds communication, Seconds cover) { return communication < cover ? Seconds() : communication - cover; }

}  // namespace plimsoll
