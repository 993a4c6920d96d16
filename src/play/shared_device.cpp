#include "play/shared_device.hpp"

#include <algorithm>
#include <iterator>

namespace plimsoll {
namespace {

/// Seconds that both last.
double overlap(double start, double end, double other_start, double other_end) {
  return std::max(0.0, std::min(end, other_end) - std::max(start, other_start));
}

}  // namespace

/// Beside what is taken from the `first` on.
double SharedDevice::end_of(const Running& kernel, std::size_t first) const {
  if (kernel.claim == Claim::blocks) return end_of_blocks(kernel, first);
  double at = kernel.start, left = kernel.end - kernel.start;
  for (std::size_t i = first; i < taken_.size() && left > 0; ++i) {
    const Taken& taken = taken_[i];
    if (taken.end <= at) continue;
    const double free = std::max(0.0, taken.start - at);
    if (left <= free) break;
    left -= free, at += free;
    if (taken.claim == Claim::device) {
      at = taken.end;
      continue;
    }
    const double slower = slowdown(kernel.claim, taken.claim), shared = std::min(left * slower, taken.end - at);
    left -= shared / slower, at += shared;
  }
  return at + left;
}

double SharedDevice::end_of_blocks(const Running& kernel, std::size_t first) const {
  double held = kernel.start, lost = 0, shared = 0;
  for (std::size_t i = first; i < taken_.size(); ++i) {
    const Taken& taken = taken_[i];
    const double both = overlap(kernel.start, kernel.end, taken.start, taken.end);
    if (taken.claim == Claim::device) lost += both;
    if (taken.claim == Claim::units) shared += both;
    if (taken.claim == Claim::blocks && taken.start <= kernel.start) held = std::max(held, taken.end);
  }
  if (held <= kernel.start) return kernel.end + lost + shared * (pricing_.product_slowdown - 1);
  return lost + std::max(kernel.end, std::min(held, kernel.end) + pricing_.second_wave * kernel.alone);
}

/// The collective begins later, and so do those behind it in its stream.
void SharedDevice::postpone(std::size_t index, double start) {
  for (const StreamId stream = taken_[index].stream; index < taken_.size(); ++index) {
    Taken& taken = taken_[index];
    if (taken.stream != stream) continue;
    if (taken.start >= start) return;
    taken.end += start - taken.start;
    taken.start = start;
    start = taken.end;
  }
}

double SharedDevice::run(const Item& kernel, double start) {
  while (!taken_.empty() && taken_.front().end <= start) taken_.pop_front();
  Running& now = running(begun_++) = {start, start + kernel.seconds, kernel.seconds, kernel.claim};
  if (taken_.empty()) return now.end;
  now.end = end_of(now, 0);
  if (now.claim == Claim::blocks)
    for (std::size_t i = 0; i < taken_.size(); ++i)
      if (taken_[i].claim == Claim::blocks && taken_[i].start > start && taken_[i].start < now.end) postpone(i, now.end);
  return now.end;
}

double SharedDevice::add(const Item& item, StreamId stream, double start, double end) {
  if (end <= start) return 0;
  const Claim claim = item.what == Item::What::kernel ? Claim::device : item.claim;
  const auto before = std::find_if(taken_.rbegin(), taken_.rend(), [&](const Taken& other) { return other.stream == stream; });
  double begin = before == taken_.rend() ? start : std::max(start, before->end);
  std::size_t first = first_beyond(begin);
  if (first < begun_ && claim == Claim::blocks && running(first).claim == Claim::blocks && running(first).start < begin)
    begin = running(first++).end;
  taken_.push_back({begin, begin + (end - start), stream, claim});
  return hold_back(first);
}

/// The first kernel that ends behind that time.
std::size_t SharedDevice::first_beyond(double time) {
  std::size_t low = begun_ - std::min(begun_, kRunning), high = begun_;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (running(middle).end > time)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Kernels that were known already, from the `first` on, lose to what was taken last what they would have lost, and those behind them begin
/// later by what no gap takes up.
double SharedDevice::hold_back(std::size_t first) {
  const std::size_t last = taken_.size() - 1;
  const double until = taken_[last].end;
  double delay = 0, free = 0;  // the next kernel may begin
  for (std::size_t i = first; i < begun_; ++i) {
    Running& kernel = running(i);
    if (i > first) delay = std::min(delay, std::max(0.0, free - kernel.start));
    if (kernel.start + delay >= until && delay <= 0) return 0;
    kernel.start += delay, kernel.end += delay;
    if (kernel.start < until) {
      const double end = end_of(kernel, last);
      delay += end - kernel.end;
      kernel.end = end;
    }
    free = kernel.end + pricing_.gap.value;
  }
  return delay;
}

void SharedDevice::shift(double seconds) {
  for (Taken& taken : taken_) taken.start += seconds, taken.end += seconds;
  for (Running& running : running_) running.start += seconds, running.end += seconds;
}

SharedDevice::Afloat SharedDevice::afloat(double from) const {
  Afloat afloat;
  std::copy_if(taken_.begin(), taken_.end(), std::back_inserter(afloat.taken), [&](const Taken& taken) { return taken.end > from; });
  for (std::size_t i = begun_; i-- > begun_ - std::min(begun_, kRunning) && running(i).end > from;) afloat.running.push_back(running(i));
  return afloat;
}

bool SharedDevice::alike(const Afloat& a, const Afloat& b, const Later& later) {
  const auto lies = [&](const auto& before, const auto& now) {
    return before.claim == now.claim && later(before.start, now.start) && later(before.end, now.end);
  };
  const auto taken = [&](const Taken& before, const Taken& now) { return before.stream == now.stream && lies(before, now); };
  return std::equal(a.taken.begin(), a.taken.end(), b.taken.begin(), b.taken.end(), taken) &&
         std::equal(a.running.begin(), a.running.end(), b.running.begin(), b.running.end(), lies);
}

}  // namespace plimsoll
