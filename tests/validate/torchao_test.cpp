// What Accelerate's 8-bit linears of torchao do not take over transformers (bench/corpus/allocator-torchao.json: torchao 0.18.0).
#include <gtest/gtest.h>

#include <vector>

#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() { return rows_in("allocator-torchao"); }

TEST(TorchAoRefusals, NameWhatIsNotPlayed) {
  EXPECT_FALSE(refused_after(row_of(rows(), "ao-llama"), [](Strategy&) {}));
  EXPECT_TRUE(refused_after(row_of(rows(), "ao-llama"), [](Strategy& s) { s.fp8_scaling = Fp8Scaling::delayed; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "ao-llama"), [](Strategy& s) { s.fp8_scaling = Fp8Scaling::blockwise; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "ao-llama"), [](Strategy& s) { s.compile = Strategy::Compile::blocks; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "ao-llama-row-fsdp2"), [](Strategy& s) { s.fsdp = {}, s.data_parallel = DataParallel::fsdp1; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "ao-llama-row-fsdp2"), [](Strategy& s) { s.fp8_scaling = Fp8Scaling::tensorwise; }));
}

// The weights' gradients are products over the tokens: by rows nobody pads them to multiples of 16.
TEST(TorchAoRefusals, TokensThatTheKernelDoesNotTake) {
  EXPECT_FALSE(refused_after(row_of(rows(), "ao-llama"), [](Strategy& s) { s.seq_len = 501; }));
  EXPECT_TRUE(refused_after(row_of(rows(), "ao-llama"), [](Strategy& s) {
    s.seq_len = 501;
    s.fp8_scaling = Fp8Scaling::rowwise;
  }));
}

// A wrapped weight is none of the classes that torch.optim keeps lists of; a recipe of torchao's own wraps none.
TEST(TorchAoRows, WrappedWeightsAreSteppedOneByOne) {
  const MeasuredRow& row = row_of(rows(), "ao-llama");
  EXPECT_EQ(resolve(row.strategy, *row.model, *row.cluster).optimizer_impl, OptimizerImpl::for_loop);
  Strategy by_row = row.strategy;
  by_row.fp8_scaling = Fp8Scaling::rowwise;
  EXPECT_EQ(resolve(by_row, *row.model, *row.cluster).optimizer_impl, OptimizerImpl::foreach);
}

}  // namespace
}  // namespace plimsoll
