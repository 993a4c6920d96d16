// Model states over all ranks, whatever the model, the strategy and the framework: nothing is divided twice, nothing is lost.
//
// A tensor of E elements that tensor parallelism cuts lies on its tp ranks once in all, another one tp times; an expert's likewise on
// ep · etp ranks. Data-parallel ranks that shard a state hold it together once per replica; those that do not hold it once each. So
//
//   sum over ranks = bytes per element · sum over tensors (elements over the model-parallel ranks) · copies,
//
// with copies = dp_replicate where the state is sharded, and the number of data-parallel ranks (cp among them) where it is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/shards.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

struct State {
  bool parameters = false, gradients = false, optimizer = false;
};

State sharded(const Strategy& s) {
  switch (s.data_parallel) {
    case DataParallel::fsdp1:
    case DataParallel::fsdp2:
    case DataParallel::zero3:
      return s.fsdp.sharding == FsdpOptions::Sharding::no_shard ? State{} : State{true, true, true};
    case DataParallel::zero2:
      return {false, true, true};
    case DataParallel::zero1:
    case DataParallel::megatron_distopt:
      return {false, false, true};
    default:
      return {};
  }
}

/// Elements over all ranks of a tensor: those that the model-parallel ranks hold together, times copies.
double elements_over_all(const ParameterTensor& tensor, const Strategy& s, bool is_sharded) {
  const bool megatron = engine_of(s) == Engine::megatron;
  const bool apart = tensor.expert && (s.ep > 1 || megatron);  // experts have a mesh of their own
  ShardSpec spec;
  spec.tp = s.tp;
  spec.ep = s.ep;
  spec.expert_tp = apart ? s.etp : s.tp;
  spec.splits_heads = megatron;
  if (megatron) spec.vocabulary_multiple = s.megatron.make_vocab_size_divisible_by;
  const double parts = apart ? static_cast<double>(s.ep) * s.etp : s.tp;
  const double data_ranks = static_cast<double>(s.gpus) / s.pp / parts;
  return static_cast<double>(shard_elements(tensor, spec)) * parts * (is_sharded ? s.dp_replicate : data_ranks);
}

/// How much larger a tensor becomes where ranks share it by whole rows: FSDP2 cuts dimension 0, which 8 experts do not fill on 16 ranks.
double padding_of(const ParameterTensor& tensor, const Strategy& s, bool is_sharded) {
  if (!is_sharded || tensor.shape.empty()) return 1;
  const std::int64_t rows = tensor.shape.front(), ranks = s.fsdp_degree;
  return static_cast<double>((rows + ranks - 1) / ranks * ranks) / static_cast<double>(rows);
}

struct Range {
  double least = 0, most = 0;
};

Range elements_over_all(const Model& model, const Strategy& s, bool is_sharded) {
  Range sum;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators)
      for (const ParameterTensor& tensor : op.parameters) {
        const double elements = static_cast<double>(block.repeat) * elements_over_all(tensor, s, is_sharded);
        // A tied head is a tensor of its own on another stage than its embedding; FSDP1 flattens it a second time.
        if (tensor.tied_to.empty() || s.pp > 1) sum.least += elements;
        if (tensor.tied_to.empty() || s.pp > 1 || engine_of(s) == Engine::fsdp1) sum.most += elements * padding_of(tensor, s, is_sharded);
      }
  return sum;
}

double moments(const Strategy& s) {
  switch (s.optimizer) {
    case OptimizerKind::sgd:
      return 0;
    case OptimizerKind::sgdm:
      return 1;
    default:
      return 2;
  }
}

double part_over_all(const Report& report, const std::string& name) {
  double sum = 0;
  for (const RankReport& rank : report.ranks)
    for (const MemoryPart& part : rank.memory.parts)
      if (part.name == name) sum += static_cast<double>(part.bytes.count) * static_cast<double>(rank.count);
  return sum;
}

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random_));
  }
  Strategy strategy(std::string& said) {
    const std::string framework = one_of<std::string>({"transformers", "deepspeed", "torchtitan", "megatron-core", "megatron-lm"});
    set(said, "framework", framework);
    if (framework == "deepspeed") set(said, "zero", one_of<std::string>({"0", "1", "2", "3"}));
    if (framework == "transformers") set(said, "data_parallel", one_of<std::string>({"ddp", "fsdp1", "fsdp2"}));
    if (framework == "torchtitan") set(said, "data_parallel", one_of<std::string>({"fsdp", "hsdp"}));
    if (framework.rfind("megatron", 0) == 0) set(said, "data_parallel", one_of<std::string>({"ddp", "megatron-distopt"}));
    if (framework != "transformers" && framework != "deepspeed") {
      set(said, "tp", one_of<std::string>({"1", "1", "2", "4"}));
      set(said, "pp", one_of<std::string>({"1", "1", "2"}));
      set(said, "ep", one_of<std::string>({"1", "2", "4", "8"}));
      set(said, "cp", one_of<std::string>({"1", "1", "2"}));
      if (strategy_.tp > 1) set(said, "sequence_parallel", "true");
    }
    set(said, "optimizer", one_of<std::string>({"adamw", "adamw", "sgd", "sgdm"}));
    set(said, "recompute", one_of<std::string>({"none", "full"}));
    set(said, "seq_len", "512");
    set(said, "global_batch", "128");
    return strategy_;
  }

 private:
  void set(std::string& said, const char* key, const std::string& value) {
    set_option(strategy_, key, value);
    said += std::string(" --") + key + " " + value;
  }
  std::mt19937 random_;
  Strategy strategy_;
};

struct Case {
  std::string model, cluster, said;
  Strategy strategy;
};

Case draw(unsigned seed) {
  Draw draw(seed);
  Case drawn;
  drawn.model = draw.one_of<std::string>({"gpt2", "pythia-160m", "qwen3-0.6b", "llama-3.2-1b", "olmoe-1b-7b", "mixtral-8x7b", "mixtral-8x22b",
                                          "granite-3.0-1b-a400m", "qwen1.5-moe-a2.7b", "qwen3-30b-a3b", "deepseek-v2-lite", "gpt-oss-20b"});
  drawn.cluster = draw.one_of<std::string>({"8xh200", "16xh100-sxm"});
  drawn.strategy = draw.strategy(drawn.said);
  drawn.said = drawn.model + " --on " + drawn.cluster + drawn.said;
  return drawn;
}

/// A played rank is the fullest of its stage, with what a framework adds (rotary tables, flat buffers'
/// padding): never less than its share, and hardly more.
void expect_states(const char* what, double held, double width, Range elements, const Report& report, const std::string& said) {
  const bool played = report.worst_rank().memory.basis == Basis::played;
  const auto ranks = static_cast<double>(report.gpus);
  const double most = played ? 1.04 * width * elements.most + ranks * 16e6 : width * elements.least + ranks;
  EXPECT_GE(held, width * elements.least - ranks) << what << (played ? ", played: " : ", closed form: ") << said;
  EXPECT_LE(held, most) << what << (played ? ", played: " : ", closed form: ") << said;
}

TEST(ModelStates, SumOverAllRanksToBytesPerParameterTimesCopies) {
  int played = 0;
  for (unsigned seed = 0; seed < 240; ++seed) {
    const Case drawn = draw(seed);
    const Model model = load_model(drawn.model);
    const Cluster cluster = parse_cluster(drawn.cluster);
    Report report;
    Strategy s;
    try {
      s = resolve(drawn.strategy, model, cluster);
      report = estimate(model, cluster, drawn.strategy);
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::internal) << error.what() << ": " << drawn.said;
      continue;
    }
    if (report.worst_rank().memory.basis != Basis::played) continue;
    ++played;
    const State shards = sharded(s);
    expect_states("parameters", part_over_all(report, "parameters"), size_of(*s.param_dtype), elements_over_all(model, s, shards.parameters),
                  report, drawn.said);
    const double per_state = moments(s) * size_of(*s.state_dtype) + (*s.master_weights ? 4 : 0);
    expect_states("optimizer states", part_over_all(report, "optimizer_states"), per_state, elements_over_all(model, s, shards.optimizer),
                  report, drawn.said);
  }
  EXPECT_GT(played, 40);
}

}  // namespace
}  // namespace plimsoll
