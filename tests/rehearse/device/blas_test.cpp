// cuBLAS and cuBLASLt: what a product's record says.
#include <gtest/gtest.h>

#include "libraries.hpp"

namespace plimsoll::rehearse::test {
namespace {

using Handle = void*;
constexpr int kOk = 0, kF32 = 0, kBf16 = 14, kF8 = 28, kCompute32 = 68;
constexpr int kTurned = 1, kStraight = 0;

class Blas : public testing::TestWithParam<const char*> {
 protected:
  const Library& blas = library(std::string("libcublas.so.") + GetParam());
  const Library& lt = library(std::string("libcublasLt.so.") + GetParam());
  Handle handle = nullptr;
  void SetUp() override { ASSERT_EQ(blas.get<int(Handle*)>("cublasCreate_v2")(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(blas.get<int(Handle)>("cublasDestroy_v2")(handle), kOk); }
  int single(int m, int n, int k) {
    return blas.get<int(Handle, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*, void*, int)>(
        "cublasSgemm_v2")(handle, kStraight, kStraight, m, n, k, nullptr, nullptr, m, nullptr, k, nullptr, nullptr, m);
  }
};

INSTANTIATE_TEST_SUITE_P(Toolkits, Blas, testing::Values("12", "13"));

/// torch.dot, of which an optimizer's line search has many: a row times a column.
TEST_P(Blas, RecordsASumOfProductsAsOneRowAndColumn) {
  constexpr int kTerms = 10000;
  const Recorded recorded;
  EXPECT_EQ((blas.get<int(Handle, int, const void*, int, const void*, int, void*)>("cublasSdot_v2"))(handle, kTerms, nullptr, 1, nullptr, 1,
                                                                                                     nullptr),
            kOk);
  EXPECT_EQ((blas.get<int(Handle, int, const void*, int, int, const void*, int, int, void*, int, int)>("cublasDotEx"))(
                handle, kTerms, nullptr, kBf16, 1, nullptr, kBf16, 1, nullptr, kBf16, kF32),
            kOk);
  const auto gemms = recorded.of<record::Gemm>(record::Kind::gemm);
  ASSERT_EQ(gemms.size(), 2u);
  for (const record::Gemm& gemm : gemms) {
    EXPECT_EQ(gemm.m, 1);
    EXPECT_EQ(gemm.n, 1);
    EXPECT_EQ(gemm.k, kTerms);
    EXPECT_EQ(gemm.compute, record::Compute::f32);
  }
  EXPECT_EQ(gemms[0].a, record::Type::f32);
  EXPECT_EQ(gemms[1].a, record::Type::bf16);
}

TEST_P(Blas, RecordsAProductsShapeAndTypes) {
  const Recorded recorded;
  EXPECT_EQ((blas.get<int(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*,
                          int, int, int, int)>("cublasGemmEx"))(handle, kTurned, kStraight, 4096, 8192, 1024, nullptr, nullptr, kBf16, 1024,
                                                                nullptr, kBf16, 1024, nullptr, nullptr, kBf16, 4096, kCompute32, -1),
            kOk);
  const auto gemms = recorded.of<record::Gemm>(record::Kind::gemm);
  ASSERT_EQ(gemms.size(), 1u);
  EXPECT_EQ(gemms[0].m, 4096);
  EXPECT_EQ(gemms[0].n, 8192);
  EXPECT_EQ(gemms[0].k, 1024);
  EXPECT_EQ(gemms[0].batch, 1u);
  EXPECT_EQ(gemms[0].a, record::Type::bf16);
  EXPECT_EQ(gemms[0].compute, record::Compute::f32);
  EXPECT_EQ(gemms[0].transpose_a, 1);
  EXPECT_EQ(gemms[0].transpose_b, 0);
  EXPECT_EQ(recorded.name(gemms[0].api), "cublasGemmEx");
}

TEST_P(Blas, SinglePrecisionFollowsTheMathMode) {
  constexpr int kTf32 = 3;
  const Recorded recorded;
  EXPECT_EQ(single(10, 20, 30), kOk);
  EXPECT_EQ(blas.get<int(Handle, int)>("cublasSetMathMode")(handle, kTf32), kOk);
  EXPECT_EQ(single(10, 20, 30), kOk);
  int mode = 0;
  EXPECT_EQ(blas.get<int(Handle, int*)>("cublasGetMathMode")(handle, &mode), kOk);
  EXPECT_EQ(mode, kTf32);
  const auto gemms = recorded.of<record::Gemm>(record::Kind::gemm);
  ASSERT_EQ(gemms.size(), 2u);
  EXPECT_EQ(gemms[0].compute, record::Compute::f32);
  EXPECT_EQ(gemms[1].compute, record::Compute::tf32);
}

TEST_P(Blas, NothingToMultiplyIsNoWork) {
  const Recorded recorded;
  EXPECT_EQ(single(0, 20, 30), kOk);
  EXPECT_NE(single(-1, 20, 30), kOk);
  EXPECT_EQ(recorded.of<record::Gemm>(record::Kind::gemm).size(), 0u);
}

TEST_P(Blas, BatchesAreCounted) {
  const Recorded recorded;
  EXPECT_EQ(
      (blas.get<int(Handle, int, int, std::int64_t, std::int64_t, std::int64_t, const void*, const void*, int, std::int64_t, long long,
                    const void*, int, std::int64_t, long long, const void*, void*, int, std::int64_t, long long, std::int64_t, int, int)>(
          "cublasGemmStridedBatchedEx_64"))(handle, 0, 0, 128, 64, 32, nullptr, nullptr, kF32, 128, 0, nullptr, kF32, 32, 0, nullptr,
                                            nullptr, kF32, 128, 0, 40, kCompute32, -1),
      kOk);
  const auto gemms = recorded.of<record::Gemm>(record::Kind::gemm);
  ASSERT_EQ(gemms.size(), 1u);
  EXPECT_EQ(gemms[0].batch, 40u);
  EXPECT_EQ(gemms[0].m, 128);
}

class Lt : public Blas {
 protected:
  Handle operation = nullptr, a = nullptr, b = nullptr, d = nullptr, preference = nullptr;
  void SetUp() override {
    Blas::SetUp();
    const int turned = 1, bias = 4;
    const auto layout = lt.get<int(Handle*, int, std::uint64_t, std::uint64_t, std::int64_t)>("cublasLtMatrixLayoutCreate");
    const auto set = lt.get<int(Handle, int, const void*, std::size_t)>("cublasLtMatmulDescSetAttribute");
    ASSERT_EQ(lt.get<int(Handle*, int, int)>("cublasLtMatmulDescCreate")(&operation, kCompute32, kF32), kOk);
    ASSERT_EQ(set(operation, 3, &turned, sizeof turned), kOk);
    ASSERT_EQ(set(operation, 7, &bias, sizeof bias), kOk);
    ASSERT_EQ(layout(&a, kF8, 512, 1024, 512), kOk);  // k × m, turned
    ASSERT_EQ(layout(&b, kF8, 512, 2048, 512), kOk);
    ASSERT_EQ(layout(&d, kBf16, 1024, 2048, 1024), kOk);
    ASSERT_EQ(lt.get<int(Handle*)>("cublasLtMatmulPreferenceCreate")(&preference), kOk);
  }
  int heuristic(Handle first, Handle second, int* found) {
    char results[96];
    return lt.get<int(Handle, Handle, Handle, Handle, Handle, Handle, Handle, int, void*, int*)>("cublasLtMatmulAlgoGetHeuristic")(
        nullptr, operation, first, second, d, d, preference, 1, results, found);
  }
};

INSTANTIATE_TEST_SUITE_P(Toolkits, Lt, testing::Values("12", "13"));

TEST_P(Lt, FindsAnAlgorithmForWhatFits) {
  int found = -1;
  EXPECT_EQ(heuristic(a, b, &found), kOk);
  EXPECT_EQ(found, 1);
  EXPECT_NE(heuristic(b, a, &found), kOk) << "the shapes do not match";
  EXPECT_EQ(found, 0);
}

TEST_P(Lt, RecordsTheProductOfItsLayouts) {
  const Recorded recorded;
  EXPECT_EQ((lt.get<int(Handle, Handle, const void*, const void*, Handle, const void*, Handle, const void*, const void*, Handle, void*,
                        Handle, const void*, void*, std::size_t, Handle)>("cublasLtMatmul"))(
                nullptr, operation, nullptr, nullptr, a, nullptr, b, nullptr, nullptr, d, nullptr, d, nullptr, nullptr, 33554432, nullptr),
            kOk);
  const auto gemms = recorded.of<record::Gemm>(record::Kind::gemm);
  ASSERT_EQ(gemms.size(), 1u);
  EXPECT_EQ(gemms[0].m, 1024);
  EXPECT_EQ(gemms[0].n, 2048);
  EXPECT_EQ(gemms[0].k, 512);
  EXPECT_EQ(gemms[0].a, record::Type::f8_e4m3);
  EXPECT_EQ(gemms[0].d, record::Type::bf16);
  EXPECT_EQ(gemms[0].epilogue, 4);
  EXPECT_EQ(gemms[0].workspace_bytes, 33554432u);
}

TEST_P(Lt, GivesBackWhatItWasTold) {
  int turned = 0;
  std::size_t written = 0;
  EXPECT_EQ(
      lt.get<int(Handle, int, void*, std::size_t, std::size_t*)>("cublasLtMatmulDescGetAttribute")(operation, 3, &turned, 4, &written),
      kOk);
  EXPECT_EQ(turned, 1);
  EXPECT_EQ(written, 4u);
  std::uint64_t rows = 0;
  EXPECT_EQ(lt.get<int(Handle, int, void*, std::size_t, std::size_t*)>("cublasLtMatrixLayoutGetAttribute")(a, 2, &rows, 8, &written), kOk);
  EXPECT_EQ(rows, 512u);
}

}  // namespace
}  // namespace plimsoll::rehearse::test
