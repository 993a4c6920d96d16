// Measured rows: read whole, refused one by one.
#include "plimsoll/rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

const char* const kModel =
    R"("model": {"name": "Llama-3.1-8B", "hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "mlp": "swiglu", "norm": "rmsnorm", "tie_embeddings": false, "positions": "rope",
        "linear_bias": false})";
const char* const kHardware = R"("hardware": {"gpu": "H100-SXM5-80GB", "gpus": 8, "gpus_per_node": 8})";
const char* const kTraining =
    R"("training": {"framework": "torchtitan", "seq_len": 8192, "micro_batch": 2, "global_batch": 16, "precision": "bf16", "data_parallel": "fsdp",
        "tp": 1, "pp": 1, "dp": 8})";

std::string row(const std::string& model, const std::string& hardware, const std::string& training, const std::string& measured) {
  return R"({"id": "a", "source": {"title": "t"}, )" + model + ", " + hardware + ", " + training + ", \"measured\": " + measured + "}";
}

MeasuredRow read(const std::string& json) {
  const auto rows = parse_rows("[" + json + "]", "rows.json");
  EXPECT_EQ(rows.size(), 1u);
  return rows.front();
}

double value_of(const MeasuredRow& r, const std::string& quantity) {
  for (const auto& each : r.measured)
    if (each.quantity == quantity) return each.value;
  return -1;
}

std::string without(std::string text, const std::string& part) {
  const auto at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.erase(at, part.size());
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Rows, AModelByFieldsIsTheArchitectureWithTheseParts) {
  const MeasuredRow r = read(row(kModel, kHardware, kTraining, R"({"step_time_s": 2.5, "peak_mem_gib": 80, "peak_mem_kind": "reserved"})"));
  ASSERT_EQ(r.refused, "");
  // Llama-3.1-8B: published total.
  EXPECT_EQ(r.model->parameters(), 8030261248);
  EXPECT_EQ(r.cluster->gpus(), 8);
  EXPECT_EQ(r.strategy.micro_batch, 2);
  EXPECT_DOUBLE_EQ(value_of(r, quantity::step_seconds), 2.5);
  EXPECT_DOUBLE_EQ(value_of(r, quantity::reserved), 80.0 * 1073741824);
}

TEST(Rows, ARateOfDropoutIsItsModels) {
  std::string model = kModel;
  const std::string inner = R"("intermediate_size": 14336, )";
  ASSERT_TRUE(contains(model, inner));
  model.insert(model.find(inner), R"("attention_dropout": 0.1, "hidden_dropout": 0.2, )");
  for (const bool stated : {false, true}) {
    const MeasuredRow r = read(row(stated ? model : kModel, kHardware, kTraining, R"({"step_time_s": 2.5})"));
    ASSERT_EQ(r.refused, "");
    for (const Block& block : r.model->blocks) {
      if (block.role != Block::Role::decoder) continue;
      EXPECT_DOUBLE_EQ(block.attention->dropout, stated ? 0.1 : 0);
      EXPECT_DOUBLE_EQ(block.hidden_dropout, stated ? 0.2 : 0);
    }
  }
}

TEST(Rows, FieldsOfAShippedEncoderAreThatEncoder) {
  const std::string bert =
      R"("model": {"name": "bert-large-uncased", "hidden_size": 1024, "num_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
         "intermediate_size": 4096, "vocab_size": 30522, "mlp": "gelu", "norm": "layernorm", "positions": "learned", "linear_bias": true})";
  EXPECT_EQ(read(row(bert, kHardware, kTraining, R"({"step_time_s": 1})")).model->model_type, "bert");
}

TEST(Rows, TheShippedCorpusIsReadWithinItsKnownRefusals) {
  // 177 rows of parameters: all but the vision-language, speech, state-space and contrastive families, which are refused by name.
  const auto rows = load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/allocator-parameters.json");
  ASSERT_EQ(rows.size(), 177u);
  std::size_t exact = 0, refused = 0;
  for (const auto& each : rows) {
    if (!each.refused.empty()) {
      ++refused;
      EXPECT_TRUE(contains(each.refused, "not modelled") || contains(each.refused, "unknown")) << each.id << ": " << each.refused;
    } else {
      EXPECT_EQ(static_cast<double>(each.model->parameters()), value_of(each, quantity::parameters)) << each.id;
      ++exact;
    }
  }
  EXPECT_GE(exact, 150u);
  EXPECT_EQ(exact + refused, 177u);
}

TEST(Rows, TokensPerSecondBecomeAStepWhereTheBatchIsStated) {
  // 16 sequences of 8192 tokens at 4096 tokens/s on each of 8 GPUs: 16 · 8192 / (4096 · 8) = 4 s.
  const MeasuredRow r = read(row(kModel, kHardware, kTraining, R"({"tokens_per_s_per_gpu": 4096})"));
  EXPECT_DOUBLE_EQ(value_of(r, quantity::step_seconds), 4.0);
  const MeasuredRow open = read(row(kModel, kHardware, without(kTraining, R"("global_batch": 16, )"), R"({"tokens_per_s_per_gpu": 4096})"));
  EXPECT_DOUBLE_EQ(value_of(open, quantity::tokens_per_second), 4096);
}

TEST(Rows, EveryMeasuredQuantityIsRead) {
  const MeasuredRow r = read(row(kModel, kHardware, kTraining,
                                 R"({"peak_allocated_bytes": 5, "peak_reserved_bytes": 6, "reserved_is_lower_bound": true, "oom": false,
      "cumulative_peak_bytes": {"backward": 7, "step": 8}, "rank_parameters": 9, "parameters": 10, "launches": 11, "gemm_flops": 12})"));
  EXPECT_EQ(value_of(r, quantity::allocated), 5);
  EXPECT_EQ(value_of(r, quantity::reserved), 6);
  EXPECT_EQ(value_of(r, quantity::backward_peak), 7);
  EXPECT_EQ(value_of(r, quantity::rank_parameters), 9);
  EXPECT_EQ(value_of(r, quantity::parameters), 10);
  EXPECT_EQ(value_of(r, quantity::launches), 11);
  EXPECT_EQ(value_of(r, quantity::gemm_flops), 12);
  EXPECT_EQ(value_of(r, quantity::fits), 1);
  for (const auto& each : r.measured) EXPECT_EQ(each.lower_bound, each.quantity == quantity::reserved);
  const MeasuredRow device = read(row(kModel, kHardware, kTraining, R"({"peak_mem_gib": 2, "peak_mem_kind": "device", "oom": true})"));
  EXPECT_EQ(value_of(device, quantity::device), 2.0 * 1073741824);
  EXPECT_EQ(value_of(device, quantity::fits), 0);
}

TEST(Rows, AbsentKeysThatNoDefaultMayFillAreNamed) {
  const std::string measured = R"({"step_time_s": 1})";
  for (const char* part : {R"("seq_len": 8192, )", R"("micro_batch": 2, )", R"("precision": "bf16", )", R"("tp": 1, )", R"("pp": 1, )"}) {
    const std::string key = std::string(part).substr(1, std::string(part).find('"', 1) - 1);
    EXPECT_TRUE(contains(read(row(kModel, kHardware, without(kTraining, part), measured)).refused, key + " is absent")) << part;
  }
  std::string unnamed = without(kModel, R"("intermediate_size": 14336, )");
  unnamed = without(unnamed, R"("name": "Llama-3.1-8B", )");  // no shipped model's config stands in
  const MeasuredRow r = read(row(unnamed, kHardware, kTraining, measured));
  EXPECT_TRUE(contains(r.refused, "intermediate_size is absent")) << r.refused;
  EXPECT_TRUE(contains(read(row(R"("model": {"name": "T0_3B"})", kHardware, kTraining, measured)).refused, "hidden_size is absent"));
}

TEST(Rows, OneBadRowNeverStopsTheOthers) {
  const std::string good = row(kModel, kHardware, kTraining, R"({"step_time_s": 1})");
  const std::string worse = row(kModel, R"("hardware": {"gpu": "Abacus-9000", "gpus": 8})", kTraining, R"({"step_time_s": 1})");
  const auto rows = parse_rows("[" + good + ", 7, {}, " + worse + ", " + good + "]", "rows.json");
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].refused, "");
  EXPECT_NE(rows[1].refused, "");
  EXPECT_NE(rows[2].refused, "");
  EXPECT_TRUE(contains(rows[3].refused, "Abacus-9000")) << rows[3].refused;
  EXPECT_EQ(rows[4].refused, "");
  EXPECT_THROW(parse_rows("{}", "rows.json"), Error);
  EXPECT_THROW(parse_rows("[", "rows.json"), Error);
}

TEST(Rows, UnknownKeysAreReportedAndNearMissesRefused) {
  const MeasuredRow r = read(row(kModel, kHardware, kTraining, R"({"step_time_s": 1, "weather": "fine"})"));
  EXPECT_EQ(r.refused, "");
  EXPECT_NE(std::find(r.unread_keys.begin(), r.unread_keys.end(), "measured.weather"), r.unread_keys.end());
  EXPECT_TRUE(contains(read(row(kModel, kHardware, kTraining, R"({"step_tme_s": 1})")).refused, "did you mean 'step_time_s'"));
}

TEST(Rows, MemoryAndContextOfTheRowStandForTheCards) {
  const MeasuredRow r =
      read(row(kModel, R"("hardware": {"gpu": "H100-SXM5-80GB", "gpus": 8, "memory_bytes": 42285268992, "context_bytes": 524288000})",
               kTraining, R"({"oom": true})"));
  EXPECT_EQ(r.cluster->accelerator.memory_usable.value, Bytes(42285268992));
  EXPECT_EQ(r.cluster->accelerator.overheads.context.value, Bytes(524288000));
  EXPECT_EQ(r.cluster->accelerator.overheads.first_communicator.value, Bytes(0));
}

TEST(Rows, NodesMayBeUsedInPart) {
  const std::string hardware = R"("hardware": {"gpu": "H100-SXM5-80GB", "gpus": 12, "gpus_per_node": 8})";
  const MeasuredRow r = read(row(kModel, hardware, kTraining, R"({"step_time_s": 1})"));
  ASSERT_EQ(r.refused, "");
  EXPECT_EQ(r.cluster->gpus(), 12);
  EXPECT_EQ(r.cluster->gpus_per_node, 4);  // three nodes of four
}

TEST(Rows, BiasesOfQueriesKeysAndValuesAloneAreQwen2s) {
  const std::string model = std::string(kModel).insert(std::string(kModel).rfind('}'), R"(, "qkv_bias": true)");
  const MeasuredRow r = read(row(model, kHardware, kTraining, R"({"step_time_s": 1})"));
  ASSERT_EQ(r.refused, "");
  EXPECT_EQ(r.model->model_type, "qwen2");
  EXPECT_EQ(r.model->parameters(), 8030261248 + 32 * (4096 + 2 * 1024));  // Llama-3.1-8B and 32 layers' biases
}

/// MLPerf's logs of NeMo: expandable segments as its launcher sets them (not on B200), the log is global rank zero's, adapters have the
/// reference's dropout. Whatever the row says itself stays.
TEST(Rows, WhatNemoFixesStandsInForWhatItsRowsLeaveOut) {
  const auto training = [](const std::string& more) {
    return R"("training": {"framework": "nemo", "seq_len": 8192, "micro_batch": 1, "global_batch": 8, "precision": "bf16", "data_parallel":
        "megatron-distopt", "tp": 1, "pp": 2, "dp": 4)" +
           more + "}";
  };
  const char* const measured = R"({"peak_mem_gib": 50, "peak_mem_kind": "unspecified"})";
  const MeasuredRow plain = read(row(kModel, kHardware, training(""), measured));
  ASSERT_EQ(plain.refused, "");
  EXPECT_TRUE(plain.strategy.allocator.expandable_segments);
  EXPECT_EQ(plain.strategy.pp_rank, 0);
  EXPECT_EQ(plain.assumed.size(), 2u);
  const MeasuredRow stated =
      read(row(kModel, kHardware, training(R"(, "pp_rank": 1, "allocator": {"expandable_segments": false})"), measured));
  EXPECT_FALSE(stated.strategy.allocator.expandable_segments);
  EXPECT_EQ(stated.strategy.pp_rank, 1);
  const std::string lora = R"(, "task": "lora", "lora": {"r": 16, "alpha": 32, "target_modules": ["attention qkv and proj"])";
  EXPECT_DOUBLE_EQ(read(row(kModel, kHardware, training(lora + "}"), measured)).strategy.lora->dropout, 0.1);
  EXPECT_DOUBLE_EQ(read(row(kModel, kHardware, training(lora + R"(, "dropout": 0.05})"), measured)).strategy.lora->dropout, 0.05);
}

/// nanotron's benchmark writes global rank zero's memory from the optimizer's step on; the number of the cluster's job is the day of the code. Whatever the row says
/// itself stays, and an id without a job's number says nothing.
TEST(Rows, WhatNanotronsBenchmarkFixes) {
  const auto training = [](const std::string& more) {
    return R"("training": {"framework": "nanotron", "seq_len": 4096, "micro_batch": 1, "grad_accum": 4, "precision": "bf16",
        "data_parallel": "zero1", "tp": 1, "pp": 2, "dp": 4)" +
           more + "}";
  };
  const auto read_as = [&](const std::string& id, const std::string& more) {
    std::string json = row(kModel, kHardware, training(more), R"({"peak_mem_gib": 50, "peak_mem_kind": "reserved"})");
    return read(json.replace(json.find("\"a\""), 3, '"' + id + '"'));
  };
  const MeasuredRow before = read_as("nanotron-14096999-8B_dp4", ""), after = read_as("nanotron-14097000-8B_dp4", "");
  ASSERT_EQ(before.refused, "");
  EXPECT_EQ(before.strategy.pp_rank, 0);
  EXPECT_EQ(before.strategy.releases.of(Package::nanotron).text(), "2024-12-26");
  ASSERT_EQ(before.measured.size(), 1u);
  EXPECT_TRUE(before.measured[0].of_optimizer);
  EXPECT_EQ(read_as("nanotron-14016421-8B_dp4", "").strategy.releases.of(Package::nanotron).text(), "2024-12-18");
  EXPECT_EQ(after.strategy.releases.of(Package::nanotron).text(), "2024-12-27");
  EXPECT_EQ(after.assumed.size(), 2u);
  EXPECT_EQ(read_as("nanotron-14096999-8B_dp4", R"(, "framework_version": "2025-06-01")").strategy.releases.of(Package::nanotron).text(), "2025-06-01");
  EXPECT_EQ(read_as("nanotron-14096999-8B_dp4", R"(, "pp_rank": 1)").strategy.pp_rank, 1);
  EXPECT_EQ(read_as("nanotron-8B_dp4", "").strategy.releases.find(Package::nanotron), nullptr);
}

TEST(Rows, HybridsAreRefusedByName) {
  const std::string hybrid = without(kModel, "\"linear_bias\": false}") + R"("linear_bias": false, "hybrid": "mamba2+attention"})";
  EXPECT_TRUE(contains(read(row(hybrid, kHardware, kTraining, R"({"step_time_s": 1})")).refused, "mamba2+attention"));
}

}  // namespace
}  // namespace plimsoll
