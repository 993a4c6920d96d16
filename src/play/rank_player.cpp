#include "play/rank_player.hpp"

#include <algorithm>
#include <cmath>

namespace plimsoll {

using What = Item::What;

// ---- Meetings ------------------------------------------------------------------------------------------------------

void Meetings::send(std::uint32_t channel, std::uint32_t from, std::uint32_t to, double ready) {
  Pair& pair = pairs_[{channel, from, to}];
  if (pair.received.empty()) {
    pair.sent.push_back(ready);
    return;
  }
  Meeting& meeting = all_[pair.received.front()];
  pair.received.pop_front();
  meeting = {std::max(meeting.ready, ready), 0};
}

MeetingId Meetings::receive(std::uint32_t channel, std::uint32_t from, std::uint32_t to, double ready) {
  Pair& pair = pairs_[{channel, from, to}];
  if (pair.sent.empty()) {
    pair.received.push_back(all_.size());
    all_.push_back({ready, 1});
  } else {
    all_.push_back({std::max(ready, pair.sent.front()), 0});
    pair.sent.pop_front();
  }
  return all_.size() - 1;
}

MeetingId Meetings::meet(const Joint& joint, std::size_t index, double ready) {
  std::vector<MeetingId>& list = of_channel_[joint.channel];
  if (list.size() <= index) {  // ranks come to them in order
    list.push_back(all_.size());
    all_.push_back({0, joint.members});
  }
  Meeting& meeting = all_[list[index]];
  meeting.ready = std::max(meeting.ready, ready);
  --meeting.missing;
  return list[index];
}

// ---- one rank ------------------------------------------------------------------------------------------------------

RankPlayer::RankPlayer(const Score& score, const PlaySettings& settings, std::uint32_t rank, Meetings& meetings)
    : score_(score.parts()),
      settings_(settings),
      pricing_(*settings.pricing),
      rank_(rank),
      meetings_(meetings),
      streams_(score_.streams),
      events_(score_.events),
      launches_(static_cast<std::size_t>(std::max<std::int64_t>(pricing_.host.queue, 1)), 0.0),
      device_(pricing_),
      began_(score_.streams, 0.0) {}

bool RankPlayer::play() {
  for (; step_ < settings_.steps; end_step()) {
    for (;;) {
      if (at_ == score_.repeat_end && repeat()) continue;
      if (at_ >= score_.items.size()) break;
      if (!play(score_.items[at_])) return false;
      ++at_;
    }
    if (!settle_all()) return false;
  }
  return true;
}

inline bool RankPlayer::play(const Item& item) {
  if (pricing_.blocking && !await_open(item)) return false;
  switch (item.what) {
    case What::kernel:
    case What::copy:
      return run(item);
    case What::collective:
    case What::meeting:
    case What::send:
    case What::receive: {
      const Joint joint = joint_of(item);
      return joint.members > 1 ? meet(item, joint) : run(item);
    }
    case What::record:
      record(item);
      return true;
    case What::wait:
      return wait(item);
    case What::host:
      host_ = after(host_, host_.time + item.seconds, item.cause);
      return true;
    case What::synchronize:
      return synchronize(item);
  }
  return true;
}

/// Where each launch is waited for (Pricing::blocking): the host goes on when what is open has ended, but for transfers that join it, which are
/// launched with it.
bool RankPlayer::await_open(const Item& item) {
  for (std::size_t id = 0; id < streams_.size(); ++id) {
    Stream& stream = streams_[id];
    const bool joins = id == item.stream && !stream.closed && (item.what == What::send || item.what == What::receive);
    if (stream.open.empty() || joins) continue;
    if (!settle(static_cast<StreamId>(id))) return false;
    await_launch(stream);
  }
  return true;
}

/// The host of a blocking run wakes when what it launched last on the stream has ended.
void RankPlayer::await_launch(const Stream& stream) {
  if (stream.last.time > host_.time) host_ = after(stream.last, stream.last.time + pricing_.host.wakes.value, Cause::host);
}

/// The host issues the item: it is at most a full queue ahead of the device.
inline void RankPlayer::issue(const Item& item) {
  if (item.issue > 0) host_ = after(host_, host_.time + item.issue, Cause::host);
  host_.time = std::max(host_.time, launches_[oldest_launch_]);
}

inline void RankPlayer::launch(double start) {
  launches_[oldest_launch_] = start;
  if (++oldest_launch_ == launches_.size()) oldest_launch_ = 0;
  ++launched_;
}

/// The earliest start of work on the stream that the host has issued.
inline RankPlayer::Moment RankPlayer::ready(const Stream& stream) const {
  Moment moment = stream.last;
  if (moment.time > 0) moment.time += pricing_.gap.value;
  if (stream.held.time > moment.time) moment = stream.held;
  if (host_.time > moment.time) moment = host_;
  return moment;
}

inline bool RankPlayer::run(const Item& item) {
  Stream& stream = streams_[item.stream];
  if (!stream.open.empty() && !settle(item.stream)) return false;
  issue(item);
  const Moment start = ready(stream);
  const bool computes = item.stream == kComputeStream && item.what == What::kernel;
  const double end = computes ? device_.run(item, start.time) : start.time + item.seconds;
  if (item.stream == kComputeStream) count(start, end, item.cause);
  stream.last = after(start, end, item.cause);
  launch(start.time);
  occupy(item.stream, item, start.time, end);
  if (pricing_.blocking) await_launch(stream);
  return true;
}

/// Which ranks a collective or transfer joins: as they say themselves, or those of a lowered pipeline.
Joint RankPlayer::joint_of(const Item& item) const {
  if (settings_.joint != nullptr) return settings_.joint->joints[settings_.joint->program->step[item.instruction].id];
  if (item.what == What::send || item.what == What::receive) return {0, 2};
  if (item.what == What::meeting && settings_.meets[item.id]) return {item.id, settings_.ranks};
  return {};
}

/// A send goes off when it is ready. A receive, or a collective of several, stays open until what it waits for is known; transfers that follow
/// one another join it (a group of NCCL's).
bool RankPlayer::meet(const Item& item, const Joint& joint) {
  Stream& stream = streams_[item.stream];
  const bool transfer = item.what == What::send || item.what == What::receive;
  const bool joins = transfer && !stream.closed && item.stream != kComputeStream;
  if (!stream.open.empty() && !joins && !settle(item.stream)) return false;
  issue(item);
  const Moment start = ready(stream);
  launch(start.time);
  if (item.what == What::send) {
    meetings_.send(joint.channel, rank_, item.id, start.time);
    if (item.stream == kComputeStream) count(start, start.time + item.seconds, item.cause);
    if (stream.open.empty()) stream.last = after(start, start.time + item.seconds, item.cause);
    occupy(item.stream, item, start.time, start.time + item.seconds);
    return true;
  }
  if (!transfer && met_.size() <= joint.channel) met_.resize(joint.channel + std::size_t{1});
  const MeetingId meeting = transfer ? meetings_.receive(joint.channel, item.id, rank_, start.time)
                                     : meetings_.meet(joint, met_[joint.channel]++, start.time);
  stream.closed = false;
  stream.open.push_back({meeting, start, item.seconds, item.instruction, item.cause, item.claim});
  return true;
}

/// Ends the open work of a stream, if everybody it waits for has come.
bool RankPlayer::settle(StreamId id) {
  Stream& stream = streams_[id];
  for (const Open& open : stream.open)
    if (!meetings_.complete(open.meeting)) return false;
  for (const Open& open : stream.open) {
    const double ready = meetings_.ready(open.meeting), end = ready + open.seconds;
    const Moment met = ready > open.start.time ? after(open.start, ready, Cause::bubble) : open.start;
    if (id == kComputeStream) count(met, end, open.cause);
    if (end > stream.last.time) stream.last = after(met, end, open.cause);
    Item item;
    item.instruction = open.instruction;
    item.what = What::receive;
    item.claim = open.claim;
    occupy(id, item, ready, end);
  }
  stream.open.clear();
  stream.closed = false;
  for (RecordedEvent& event : events_) {
    if (!event.open || event.stream != id) continue;
    event.open = false;
    event.moment = stream.last;
  }
  return true;
}

bool RankPlayer::settle_all() {
  for (std::size_t id = 0; id < streams_.size(); ++id)
    if (!streams_[id].open.empty() && !settle(static_cast<StreamId>(id))) return false;
  return true;
}

inline void RankPlayer::record(const Item& item) {
  Stream& stream = streams_[item.stream];
  RecordedEvent& event = events_[item.id];
  event.stream = item.stream;
  event.open = !stream.open.empty();
  if (event.open) stream.closed = true;
  event.moment = stream.held.time > stream.last.time ? stream.held : stream.last;
}

inline bool RankPlayer::wait(const Item& item) {
  const RecordedEvent& event = events_[item.id];
  if (event.open && !settle(event.stream)) return false;
  Moment& held = streams_[item.stream].held;
  if (event.stream != item.stream && event.moment.time > held.time) held = event.moment;
  return true;
}

bool RankPlayer::synchronize(const Item& item) {
  const bool alone = item.id == 1;
  const Stream& own = streams_[item.stream];
  if (alone ? !own.open.empty() && !settle(item.stream) : !settle_all()) return false;
  Moment done = own.held.time > own.last.time ? own.held : own.last;
  for (const Stream& stream : streams_)
    if (!alone && stream.last.time > done.time) done = stream.last;
  if (done.time > host_.time) host_ = done;
  host_ = after(host_, host_.time + pricing_.host.wakes.value, Cause::host);
  return true;
}

inline void RankPlayer::occupy(StreamId id, const Item& item, double start, double end) {
  if (settings_.with_events && step_ + 1 == settings_.steps) played_.push_back({item.instruction, id, Seconds(start), Seconds(end)});
  const bool elsewhere = id < settings_.elsewhere.size() && settings_.elsewhere[id];
  if (id == kComputeStream || item.what == What::copy || elsewhere) return;
  const double delay = device_.add(item, id, start, end);
  streams_[kComputeStream].last.time += delay;
  if (delay > 0) count(streams_[kComputeStream].last, streams_[kComputeStream].last.time, streams_[kComputeStream].last.cause);
}

/// What lasts from one moment to another. What is counted already asks for no link: nobody asks what kept it.
inline RankPlayer::Moment RankPlayer::after(const Moment& before, double time, Cause cause) {
  if (before.time <= counted_) return {time, cause, kNoLink};
  if (before.cause == cause) return {time, cause, before.link};
  links_[next_link_ % kLinks] = before;
  return {time, cause, next_link_++};
}

/// Counts the time from `since` until a moment as what kept it from being earlier, that from being earlier, and so on.
void RankPlayer::blame(Moment until, double since, Parts& parts) const {
  while (until.time > since) {
    const bool known = until.link != kNoLink && until.link + kLinks >= next_link_;
    const Moment before = known ? links_[until.link % kLinks] : Moment{since};
    const double began = std::max(since, before.time);
    parts[static_cast<std::size_t>(until.cause)] += std::max(0.0, until.time - began);
    until = {std::min(began, until.time), before.cause, before.link};
  }
}

/// The compute stream waited until `start`, for what it says, and then did something else.
inline void RankPlayer::count(Moment start, double end, Cause cause) {
  const double gap = pricing_.gap.value;
  if (start.time - counted_ > gap) {
    blame(start, counted_ + gap, parts_);
    counted_ = start.time - gap;
  }
  parts_[static_cast<std::size_t>(cause)] += std::max(0.0, end - counted_);
  counted_ = std::max(counted_, end);
}

void RankPlayer::end_step() {
  ++step_;
  if (step_ == settings_.steps) return;
  at_ = 0;
  repetition_ = 0;
  before_ = before_that_ = {};
  parts_.fill(0);
  for (std::size_t i = 0; i < streams_.size(); ++i) began_[i] = streams_[i].last.time;
  began_[kComputeStream] = counted_;
}

// ---- repeated micro-batches ------------------------------------------------------------------------------------------

RankPlayer::Snapshot RankPlayer::snapshot() const {
  Snapshot now;
  for (const Stream& stream : streams_) now.streams.push_back(stream.last.time);
  now.host = host_.time;
  now.parts = parts_;
  return now;
}

/// From a to b as much time went by everywhere as from b to c.
bool RankPlayer::alike(const Snapshot& a, const Snapshot& b, const Snapshot& c) {
  if (a.streams.empty()) return false;
  const double whole = c.host - b.host + c.streams[kComputeStream] - b.streams[kComputeStream], tolerance = 1e-9 * whole;
  const auto same = [&](double x, double y, double z) { return std::abs((z - y) - (y - x)) <= tolerance; };
  for (std::size_t i = 0; i < a.streams.size(); ++i)
    if (!same(a.streams[i], b.streams[i], c.streams[i])) return false;
  return same(a.host, b.host, c.host);
}

/// Nothing within the repeated items waits for another rank.
bool RankPlayer::repeats_alone() const {
  bool meets = score_.repeats_transfers;
  for (std::size_t group = 0; group < kGroups; ++group) meets = meets || (score_.repeats_meetings[group] && settings_.meets[group]);
  return !meets;
}

/// At the end of the repeated items: whether they are played again. Once one repetition takes as long as the one before it, so do all others.
bool RankPlayer::repeat() {
  if (repetition_ + 1 >= score_.repeat_times) return false;
  ++repetition_;
  if (repeats_alone() && !settings_.with_events) {
    const Snapshot now = snapshot();
    if (alike(before_that_, before_, now)) {
      skip_repeats(static_cast<double>(score_.repeat_times - repetition_));
      return false;
    }
    before_that_ = std::exchange(before_, now);
  }
  at_ = score_.repeat_begin;
  return true;
}

/// `times` more of the last repetition.
void RankPlayer::skip_repeats(double times) {
  const Snapshot now = snapshot();
  const auto longer = [&](std::size_t stream) { return times * (now.streams[stream] - before_.streams[stream]); };
  for (RecordedEvent& event : events_) event.moment.time += longer(event.stream);
  for (std::size_t i = 0; i < streams_.size(); ++i) streams_[i].last.time += longer(i);
  for (Stream& stream : streams_) stream.held = {};
  for (double& launch : launches_) launch += longer(kComputeStream);
  for (std::size_t i = 0; i < kCauses; ++i) parts_[i] += times * (now.parts[i] - before_.parts[i]);
  device_.clear();
  counted_ += longer(kComputeStream);
  host_.time += times * (now.host - before_.host);
  repetition_ = score_.repeat_times;
}

// ---- the reading ---------------------------------------------------------------------------------------------------

double RankPlayer::seconds() const {
  double longest = counted_ - began_[kComputeStream];
  for (std::size_t i = 0; i < streams_.size(); ++i) longest = std::max(longest, streams_[i].last.time - began_[i]);
  return longest;
}

/// What is no kernel's time is taken to draw what kernels that are no products do, which is the most it can.
double RankPlayer::power_of(double step) const {
  double kernels = 0;
  for (const Seconds& each : score_.by_kernel) kernels += each.value;
  const double rest = std::max(0.0, step - kernels) * pricing_.cluster.accelerator.gemm.power_elsewhere.value;
  return step > 0 ? std::min(1.0, (score_.drawn.value + rest) / step) : 1.0;
}

/// What a stream beside the compute stream takes longer than it is blamed like a wait for that stream; what other ranks take longer is a bubble.
Timeline RankPlayer::timeline(double slowest) const {
  Timeline timeline{};
  Parts parts = parts_;
  const double own = seconds(), computed = counted_ - began_[kComputeStream];
  for (std::size_t i = 0; i < streams_.size(); ++i)
    if (own > computed && streams_[i].last.time - began_[i] >= own) {
      blame(streams_[i].last, streams_[i].last.time - (own - computed), parts);
      break;
    }
  const auto part = [&](Cause cause) { return Seconds(parts[static_cast<std::size_t>(cause)]); };
  timeline.compute = part(Cause::compute) + part(Cause::nothing);
  timeline.recompute = part(Cause::recompute);
  timeline.optimizer = part(Cause::optimizer);
  timeline.exposed_copies = part(Cause::copy);
  timeline.transfers = part(Cause::transfer);
  timeline.bubble = part(Cause::bubble) + Seconds(std::max(0.0, slowest - own));
  timeline.host = part(Cause::host);
  timeline.host_optimizer = part(Cause::host_optimizer);
  for (std::size_t i = 0; i < kGroups; ++i) timeline.exposed[i] = part(cause_of(static_cast<Group>(i)));
  timeline.step = Seconds(std::max(slowest, own));
  timeline.communication = score_.communication;
  timeline.copies = score_.copies;
  timeline.by_kernel = score_.by_kernel;
  timeline.by_group = score_.by_group;
  timeline.power = power_of(timeline.step.value);
  timeline.dearest = score_.dearest;
  timeline.events = played_;
  for (Event& event : timeline.events) event.start = event.start - Seconds(began_[kComputeStream]), event.end = event.end - Seconds(began_[kComputeStream]);
  return timeline;
}

}  // namespace plimsoll
