#include "estimate/played_time.hpp"

#include <algorithm>

namespace plimsoll::estimation {
namespace {

Seconds exposed(const Timeline& timeline, std::initializer_list<Group> groups) {
  Seconds sum;
  for (const Group group : groups) sum += timeline.exposed[static_cast<std::size_t>(group)];
  return sum;
}

}  // namespace

StepTime parts_of(const Timeline& timeline) {
  StepTime step;
  step.compute = timeline.compute;
  step.recompute = timeline.recompute;
  step.tensor_parallel = exposed(timeline, {Group::tensor});
  step.context_parallel = exposed(timeline, {Group::context});
  step.expert_parallel = exposed(timeline, {Group::expert});
  step.data_parallel = exposed(timeline, {Group::data_shard, Group::data_replicate, Group::expert_data, Group::world, Group::pipeline});
  step.pipeline_transfers = timeline.transfers;
  step.bubble = timeline.bubble;
  step.copies = timeline.exposed_copies;
  step.host = timeline.host;
  step.optimizer = timeline.optimizer;
  step.host_optimizer = timeline.host_optimizer;
  return step;
}

void PlayedTime::lacks(const std::string& reason) {
  if (lacking_.empty()) lacking_ = reason;
}

Timeline PlayedTime::busiest() const {
  std::vector<Timeline> timelines = play_ranks(ranks_, pricer_.pricing());
  return std::move(*std::min_element(timelines.begin(), timelines.end(), [](const Timeline& a, const Timeline& b) { return a.bubble < b.bubble; }));
}

}  // namespace plimsoll::estimation
