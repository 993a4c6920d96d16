// One row per framework's code: who makes the programs of a run's ranks.
#include <algorithm>
#include <iterator>
#include <memory>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "program/lower.hpp"
#include "program/modules/network_source.hpp"

namespace plimsoll::program {
namespace {

/// Every rank is recorded by itself.
template <StepProgram (*lower)(const Lowering&, const Rank&)>
class EachRecorded final : public RankSource {
 public:
  explicit EachRecorded(const Lowering& run) : run_(run) {}
  StepProgram rank(int pipeline_rank, StepProgram /*spare*/) override { return lower(run_, {pipeline_rank}); }

 private:
  Lowering run_;
};

template <class Source>
std::unique_ptr<RankSource> made(const Lowering& run) {
  return std::make_unique<Source>(run);
}

struct Row {
  ModelCode code;
  std::unique_ptr<RankSource> (*source)(const Lowering& run);
};

constexpr Row kRows[] = {
    {ModelCode::transformers, made<EachRecorded<lower_transformers>>},
    {ModelCode::diffusers, made<EachRecorded<lower_transformers>>},
    {ModelCode::torchtitan, made<TitanPipeline>},
    {ModelCode::torchtune, made<EachRecorded<lower_torchtune>>},
    {ModelCode::megatron_local, made<MegatronPipeline>},
    {ModelCode::megatron_te, made<MegatronPipeline>},
    {ModelCode::megatron_legacy, made<EachRecorded<lower_megatron_deepspeed>>},
    {ModelCode::nanotron, made<EachRecorded<lower_nanotron>>},
    {ModelCode::mpt, made<EachRecorded<lower_llm_foundry>>},
    {ModelCode::maxtext, made<EachRecorded<lower_maxtext>>},
};

}  // namespace

std::unique_ptr<RankSource> rank_source(const Lowering& run) {
  if (const NetworkSource* source = network_source(run.model)) refuse_beside_source(*source, run.strategy);
  const ModelCode code = profile_of(run.strategy).code;
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [code](const Row& each) { return each.code == code; });
  if (row == std::end(kRows)) refuse(run.strategy.framework + "'s layers have no lowering yet");
  return row->source(run);
}

}  // namespace plimsoll::program
