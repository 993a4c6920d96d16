// What torchtune's published tables leave out, and how it is read.
#include <gtest/gtest.h>

#include <string>

#include "plimsoll/rows.hpp"

namespace plimsoll {
namespace {

MeasuredRow row_of(const std::string& where, const std::string& more) {
  const std::string json = R"([{"id": "tune", "source": {"title": "torchtune", "where": ")" + where +
                           R"(", "version_or_date": "2024-11-18"},
      "model": {"name": "Llama-3.2-3B", "hidden_size": 3072, "num_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8,
                "intermediate_size": 8192, "vocab_size": 128256, "mlp": "swiglu", "norm": "rmsnorm", "tie_embeddings": true,
                "positions": "rope", "linear_bias": false, "head_dim": 128},
      "hardware": {"gpu": "A100-80GB-SXM", "gpus": 1},
      "training": {"framework": "torchtune", "seq_len": 4096, "micro_batch": 2, "global_batch": 2, "precision": "bf16")" +
                           more + R"(}, "measured": {"peak_mem_gib": 60, "peak_mem_kind": "allocated"}}])";
  return parse_rows(json, "the test").front();
}

// "each row adds to the previous": the loss in parts is one of the things added, so a row that does not name it runs without.
TEST(TorchtuneRows, RowsThatAddToThePreviousLackWhatTheyDoNotName) {
  const std::string table = "Optimization flags table (each row adds to the previous)";
  EXPECT_EQ(row_of(table, R"(, "packed": true)").strategy.loss, LossKernel::cross_entropy);
  EXPECT_EQ(row_of(table, R"(, "packed": true, "loss": "chunked-ce")").strategy.loss, LossKernel::chunked);
  EXPECT_EQ(row_of("another table", R"(, "packed": true)").strategy.loss, LossKernel::automatic);
}

// seq_len is only the limit of samples that are not packed.
TEST(TorchtuneRows, UnpackedSamplesOfUnknownLengthAreRefusedByName) {
  EXPECT_NE(row_of("a table", R"(, "packed": false)").refused.find("average_tokens_per_sample"), std::string::npos);
  EXPECT_EQ(row_of("a table", R"(, "packed": true)").refused, "");
  EXPECT_EQ(row_of("a table", "").refused, "");
}

}  // namespace
}  // namespace plimsoll
