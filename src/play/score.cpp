#include "play/score.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

std::uint64_t key_of(const Collective& c) {
  return static_cast<std::uint64_t>(c.bytes) * 4096 + static_cast<std::uint64_t>(c.kind) * 256 + static_cast<std::uint64_t>(c.group) * 16 +
         static_cast<std::uint64_t>(c.type);
}

bool is_transfer(const Collective& collective) {
  return collective.kind == CollectiveKind::send || collective.kind == CollectiveKind::receive;
}

/// Collectives over all ranks of a pipeline: nobody is done before the last one has come.
bool joins_stages(const Collective& collective) {
  return !is_transfer(collective) && (collective.group == Group::world || collective.group == Group::pipeline);
}

}  // namespace

Score::Score() : parts_(std::make_unique<Parts>()) {}
Score::~Score() = default;
Score::Score(Score&&) noexcept = default;
Score& Score::operator=(Score&&) noexcept = default;

std::int64_t Score::pieces() const {
  const auto repeated = static_cast<std::int64_t>(parts_->repeat_end - parts_->repeat_begin);
  return static_cast<std::int64_t>(parts_->items.size()) + (parts_->repeat_times - 1) * repeated;
}

void Score::stand_alone() {
  for (Item& item : parts_->items)
    if (item.what == Item::What::send || item.what == Item::What::receive) item.what = Item::What::collective;
  parts_->repeats_meetings = {};
}

struct Pricer::Tables {
  Pricing pricing;
  struct Priced {
    Kernel kernel;
    double seconds;
    double draw;
    Claim claim;
  };
  std::unordered_multimap<std::size_t, Priced> kernels;
  std::unordered_map<std::uint64_t, double> collectives;

  std::optional<Surroundings> around;  ///< of the first rank's step

  const Priced& priced(const Kernel& kernel) {
    const std::size_t hash = hash_of(kernel);
    const auto [first, last] = kernels.equal_range(hash);
    for (auto at = first; at != last; ++at)
      if (at->second.kernel == kernel) return at->second;
    const Accelerator& device = pricing.cluster.accelerator;
    const Surroundings beside = around.value_or(Surroundings{});
    return kernels.emplace(hash, Priced{kernel, price(kernel, device, beside).value, draw(kernel, device, beside), claim_of(kernel)})->second;
  }

  Claim claim_of(const Kernel& kernel) const {
    const Cluster& cluster = pricing.cluster;
    const auto* product = std::get_if<Product>(&kernel.work);
    if (product && needs_all_units(*product, cluster.accelerator, cluster.node.collectives.channels, around.value_or(Surroundings{})))
      return Claim::blocks;
    return kernel.product() || kernel.attention() ? Claim::units : Claim::bandwidth;
  }

  double seconds_of(const Collective& collective) {
    const auto [at, inserted] = collectives.try_emplace(key_of(collective), 0.0);
    if (inserted) at->second = price(collective, pricing.groups[static_cast<std::size_t>(collective.group)], pricing.cluster).value;
    return at->second;
  }
};

Pricer::Pricer(Pricing pricing) : tables_(std::make_unique<Tables>()) { tables_->pricing = std::move(pricing); }
Pricer::~Pricer() = default;
const Pricing& Pricer::pricing() const { return tables_->pricing; }
Surroundings Pricer::around() const { return tables_->around.value_or(Surroundings{}); }

namespace {

/// Reads a program's instructions into items.
template <class Tables>
class ScoreWriter {
 public:
  ScoreWriter(const StepProgram& program, Tables& tables, Score::Parts* parts) : program_(program), tables_(tables), score_(*parts) {
    launches_.resize(program.kernels.size());
    collectives_.assign(program.collectives.size(), kNotAsked);
    copies_.assign(program.copies.size(), kNotAsked);
    const std::vector<std::string>& captured = tables.pricing.replayed;
    if (captured.empty()) return;
    for (const std::string& label : program.labels)
      replayed_.push_back(
          std::any_of(captured.begin(), captured.end(), [&](const auto& part) { return label.find(part) != std::string::npos; }));
  }

  void write() {
    score_.streams = std::max<std::size_t>(program_.streams.size(), 1);
    score_.items.reserve(program_.step.size() / kOfInstructions);
    const Repeated& repeated = program_.repeated;
    const std::size_t end = program_.step.size();
    if (repeated.begin < repeated.end) {
      read(0, repeated.begin);
      score_.repeat_begin = place();
      score_.repeat_times = runs_ = repeated.times;
      read(repeated.begin, repeated.end);
      score_.repeat_end = place();
      runs_ = 1;
      read(repeated.end, end);
    } else {
      read(0, end);
    }
    place();
    find_dearest();
  }

 private:
  static constexpr std::size_t kOfInstructions = 3;  // a third of them takes time, or has somebody wait

  void read(std::size_t from, std::size_t to) {
    const Instruction* const step = program_.step.data();
    for (std::size_t i = from; i < to; ++i)
      if (step[i].kind > InstructionKind::free) read(step[i], static_cast<std::uint32_t>(i));
  }

  void read(const Instruction& instruction, std::uint32_t index) {
    Item item;
    item.instruction = index;
    item.stream = instruction.stream;
    switch (instruction.kind) {
      case InstructionKind::kernel:
        return kernel(item, instruction);
      case InstructionKind::collective:
        return collective(item, instruction.id);
      case InstructionKind::copy:
        return copy(item, instruction.id);
      case InstructionKind::record_event:
      case InstructionKind::wait_event:
        item.what = instruction.kind == InstructionKind::record_event ? Item::What::record : Item::What::wait;
        item.id = instruction.id;
        meet_event(item);
        score_.events = std::max(score_.events, instruction.id + std::size_t{1});
        return add(item);
      case InstructionKind::host:
        return host(item, instruction);
      case InstructionKind::synchronize:
        place();
        item.what = Item::What::synchronize;
        item.id = instruction.id;
        return add(item);
      case InstructionKind::phase:
        phase_ = static_cast<Phase>(instruction.id);
        return;
      default:
        return;
    }
  }

  void find_dearest() {
    constexpr std::size_t kDearest = 10;
    std::vector<std::size_t> order(launches_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto seconds = [&](std::size_t id) { return static_cast<double>(launches_[id].count) * std::max(launches_[id].seconds, 0.0); };
    const std::size_t most = std::min(kDearest, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
                      [&](std::size_t a, std::size_t b) { return seconds(a) > seconds(b); });
    for (std::size_t i = 0; i < most && seconds(order[i]) > 0; ++i) {
      const Launches& launches = launches_[order[i]];
      score_.dearest.push_back(
          {program_.kernels[order[i]], program_.labels.at(launches.label), launches.count, Seconds(seconds(order[i]))});
    }
  }

  /// By a CUDA graph, whose single launch stands for all that it captured.
  bool replayed(const Instruction& instruction) const { return !replayed_.empty() && replayed_[instruction.label]; }

  /// What the host has done so far lies before the next item.
  std::size_t place() {
    Item item;
    item.what = Item::What::host;
    item.cause = Cause::host;
    item.seconds = std::exchange(worked_, 0);
    if (item.seconds > 0) add(item);
    return score_.items.size();
  }

  /// Host seconds until the next launch is issued, which itself takes so many.
  double issue(double launch) { return launch + std::exchange(worked_, 0); }

  void add(const Item& item) {
    if (item.stream >= score_.streams) throw Error(ErrorCode::internal, "a step program uses a stream that it does not name");
    score_.items.push_back(item);
  }

  /// All launches of a kernel.
  struct Launches {
    std::int64_t count = 0;
    std::uint32_t label = 0;  ///< of the first
    double seconds = 0;       ///< of each
    double draw = 0;          ///< board powers
    std::size_t kind = 0;     ///< KernelKind
    Claim claim = Claim::bandwidth;
  };

  /// At its first launch.
  void open(Launches& launches, const Instruction& instruction) {
    const Kernel& kernel = program_.kernels[instruction.id];
    launches.label = instruction.label;
    launches.kind = static_cast<std::size_t>(kernel.kind());
    const auto& priced = tables_.priced(kernel);
    launches.claim = priced.claim;
    launches.draw = priced.draw;
    launches.seconds = priced.seconds * (priced.claim == Claim::bandwidth ? 1 : tables_.pricing.pace);
  }

  void kernel(Item& item, const Instruction& instruction) {
    Launches& launches = launches_.at(instruction.id);
    if (launches.count == 0) open(launches, instruction);
    launches.count += runs_;
    item.what = Item::What::kernel;
    item.claim = launches.claim;
    item.seconds = launches.seconds;
    if (item.stream == kComputeStream) ++kernels_issued_;
    item.issue = issue(replayed(instruction) ? 0 : tables_.pricing.host.launch.value);
    item.cause = phase_ == Phase::optimizer ? Cause::optimizer : instruction.again ? Cause::recompute : Cause::compute;
    score_.by_kernel[launches.kind] += Seconds(item.seconds * static_cast<double>(runs_));
    score_.drawn += Seconds(item.seconds * static_cast<double>(runs_) * launches.draw);
    add(item);
  }

  void collective(Item& item, std::uint32_t id) {
    const Collective& collective = program_.collectives.at(id);
    if (collectives_[id] < 0) collectives_[id] = tables_.seconds_of(collective);
    item.seconds = collectives_[id];
    item.issue = issue(tables_.pricing.meeting[static_cast<std::size_t>(collective.group)].value);
    item.cause = cause_of(collective.group);
    const auto group = static_cast<std::size_t>(collective.group);
    const bool transfer = is_transfer(collective);
    if (transfer && collective.group == Group::pipeline) item.cause = Cause::transfer;
    item.what = Item::What::collective;
    if (transfer && collective.peer != Collective::kNoPeer) {
      item.what = collective.kind == CollectiveKind::send ? Item::What::send : Item::What::receive;
      item.id = static_cast<std::uint32_t>(collective.peer);
    } else if (joins_stages(collective)) {
      item.what = Item::What::meeting;
      item.id = static_cast<std::uint32_t>(group);
      score_.meetings[group] += runs_;
    }
    if (runs_ > 1 && item.what == Item::What::meeting) score_.repeats_meetings[group] = true;
    item.claim = claim_of(collective);
    if (item.stream != kComputeStream) slow_down(item, group);
    score_.communication += Seconds(item.seconds * static_cast<double>(runs_));
    score_.by_group[group] += Seconds(item.seconds * static_cast<double>(runs_));
    add(item);
  }

  /// In a group of several nodes NCCL gives a transfer two channels for each peer (ncclTopoComputeP2pChannelsPerPeer of src/graph/paths.cc).
  Claim claim_of(const Collective& collective) const {
    const bool transfer = is_transfer(collective);
    if (transfer && tables_.pricing.groups[static_cast<std::size_t>(collective.group)].nodes > 1) return Claim::bandwidth;
    return transfer || collective.expected ? Claim::units : Claim::blocks;
  }

  /// Kernels run beside a collective on a stream of its own, unless the compute stream waits for it at once.
  void slow_down(Item& item, std::size_t group) {
    const double alone = item.seconds;
    item.seconds *= tables_.pricing.communication_slowdown;
    if (beside_.size() <= item.stream) beside_.resize(item.stream + std::size_t{1});
    beside_[item.stream] = Beside{score_.items.size(), kernels_issued_, group, alone};
  }

  /// The compute stream waits for what lies behind an event.
  void meet_event(const Item& item) {
    if (item.what == Item::What::record) {
      if (recorded_on_.size() <= item.id) recorded_on_.resize(item.id + std::size_t{1}, kNowhere);
      recorded_on_[item.id] = item.stream;
      return;
    }
    const std::size_t stream = item.id < recorded_on_.size() ? recorded_on_[item.id] : kNowhere;
    if (item.stream != kComputeStream || stream >= beside_.size() || !beside_[stream]) return;
    const Beside& beside = *beside_[stream];
    if (beside.kernels != kernels_issued_) return;
    double& seconds = score_.items[beside.item].seconds;
    const Seconds saved((seconds - beside.alone) * static_cast<double>(runs_));
    seconds = beside.alone;
    score_.communication = score_.communication - saved;
    score_.by_group[beside.group] = score_.by_group[beside.group] - saved;
    beside_[stream].reset();
  }

  void copy(Item& item, std::uint32_t id) {
    const Copy& copy = program_.copies.at(id);
    if (copies_[id] < 0) copies_[id] = price(copy, tables_.pricing.cluster).value;
    const bool on_device = copy.direction == Copy::Direction::set || copy.direction == Copy::Direction::device_to_device;
    item.what = Item::What::copy;
    item.seconds = copies_[id];
    item.issue = issue(tables_.pricing.host.launch.value);
    item.cause = !on_device ? Cause::copy : phase_ == Phase::optimizer ? Cause::optimizer : Cause::compute;
    score_.copies += Seconds(item.seconds * static_cast<double>(runs_));
    add(item);
  }

  void host(Item& item, const Instruction& instruction) {
    if (replayed(instruction)) return;
    item.seconds = static_cast<double>(instruction.bytes) * tables_.pricing.host.work.at(instruction.id).value;
    if (static_cast<HostWork>(instruction.id) != HostWork::memory_traffic) {
      worked_ += item.seconds;
      if (tables_.pricing.blocking) place();  // it waits for what is open before it works
      return;
    }
    place();
    item.what = Item::What::host;
    item.cause = Cause::host_optimizer;
    if (item.seconds > 0) add(item);
  }

  const StepProgram& program_;
  Tables& tables_;
  Score::Parts& score_;
  /// The last collective of a stream, and how many kernels had been issued before it.
  struct Beside {
    std::size_t item, kernels, group;
    double alone;  ///< seconds
  };
  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
  std::vector<std::optional<Beside>> beside_;  ///< by stream
  std::vector<std::size_t> recorded_on_;       ///< by event: its stream
  std::size_t kernels_issued_ = 0;
  double worked_ = 0;  ///< seconds of the host since the last item that it had to do with
  static constexpr double kNotAsked = -1;
  std::vector<char> replayed_;                ///< by label; empty: none
  std::vector<Launches> launches_;            ///< by kernel
  std::vector<double> collectives_, copies_;  ///< seconds of each, once one was asked for
  std::int64_t runs_ = 1;
  Phase phase_ = Phase::forward;
};

/// The share of its kernels' time, each alone, that a step spends in products and attention.
Surroundings surroundings_of(const StepProgram& program, const Accelerator& device) {
  std::vector<double> runs(program.kernels.size());
  for (std::size_t i = 0; i < program.step.size(); ++i)
    if (program.step[i].kind == InstructionKind::kernel) runs.at(program.step[i].id) += static_cast<double>(program.repeated.runs_of(i));
  double matrix = 0, all = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i] == 0) continue;
    const double seconds = runs[i] * price(program.kernels[i], device).value;
    all += seconds;
    if (program.kernels[i].product() || program.kernels[i].attention()) matrix += seconds;
  }
  return {all > 0 ? matrix / all : 0};
}

}  // namespace

Score Pricer::score(const StepProgram& program) {
  Score score;
  if (!tables_->around) tables_->around = surroundings_of(program, tables_->pricing.cluster.accelerator);
  ScoreWriter<Tables>(program, *tables_, score.parts_.get()).write();
  return score;
}

}  // namespace plimsoll
