// The price of matrix products: the law on hand-made devices, and against products measured on an H100 and an H200.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "cost/memory_time.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "units/files.hpp"

namespace plimsoll {
namespace {

constexpr double kMicro = 1e-6;

/// 100 units of 1 TFLOP/s, memory that no product waits for, one family of kernels with one tile of 128 × 64; nothing else takes time.
Accelerator plain_device() {
  Accelerator device = load_accelerator("h100-sxm");
  device.name = "plain";
  device.compute_units = 100;
  device.memory_bandwidth.value = BytesPerSecond(1e18);
  device.memory_efficiency.value = 1;
  for (ComputeRate& rate : device.rates) rate.peak.value = FlopsPerSecond(100e12);
  ProductKernels kernels;
  kernels.name = "plain";
  kernels.alignment = 16;
  kernels.tiles = {{128, 64}};
  kernels.feed.value = kernels.store.value = BytesPerSecond(1e18);
  kernels.power.value = 1.2;
  kernels.rates = {{MathType::bf16, {}, {1.0, Provenance::assumed, "test"}}};
  device.gemm.kernels = {kernels};
  device.gemm.start.value = device.gemm.reduction.value = Seconds();
  device.gemm.power_elsewhere.value = 0.7;
  return device;
}

Product bf16_product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
  Product product;
  product.m = m, product.n = n, product.k = k, product.batch = batch;
  return product;
}

double microseconds(const Product& product, const Accelerator& device, double matrix_share = 0) {
  return price(product, device, {matrix_share}).value / kMicro;
}

// A tile of k = 400 is 2·128·64·400 = 6.5536 MFLOP: 6.5536 µs on a unit of 1 TFLOP/s. 10 × 10 tiles are one wave, 10 × 11 are two.
TEST(Products, WavesOfTiles) {
  const Accelerator device = plain_device();
  EXPECT_NEAR(microseconds(bf16_product(1280, 640, 400), device), 6.5536, 1e-6);
  EXPECT_NEAR(microseconds(bf16_product(1280, 641, 400), device), 13.1072, 1e-6);
  EXPECT_NEAR(microseconds(bf16_product(128, 64, 400, 100), device), 6.5536, 1e-6);
  EXPECT_NEAR(microseconds(bf16_product(128, 64, 400, 101), device), 13.1072, 1e-6);
}

// 1280 × 640 × 1000: A 2.56 MB, B 1.28 MB, D 1.6384 MB are 54.784 µs at 0.1 TB/s; with the 16.384 µs of arithmetic
// ⁴√(54.784⁴ + 16.384⁴) = 54.893. Added to, D is read as well: 71.168 µs, with the arithmetic 71.218.
TEST(Products, TrafficBounds) {
  Accelerator device = plain_device();
  device.memory_bandwidth.value = BytesPerSecond(0.1e12);
  Product product = bf16_product(1280, 640, 1000);
  EXPECT_NEAR(microseconds(product, device), 54.893, 1e-3);
  product.accumulates = true;
  EXPECT_NEAR(microseconds(product, device), 71.218, 1e-3);
}

// A unit that takes in 19.2 GB/s of operands: (128 + 64)·2 B = 384 B for each of k, 20 ns, where arithmetic takes 16.384. It writes
// 128·64·2 B = 16,384 B at 16.384 GB/s: 1 µs.
TEST(Products, FeedStoreAndStart) {
  Accelerator device = plain_device();
  ProductKernels& kernels = device.gemm.kernels[0];
  kernels.feed.value = BytesPerSecond(19.2e9);
  EXPECT_NEAR(microseconds(bf16_product(1280, 640, 1000), device), 20, 1e-6);
  kernels.store.value = BytesPerSecond(16.384e9);
  EXPECT_NEAR(microseconds(bf16_product(1280, 640, 1000), device), 21, 1e-6);
  kernels.start.value = Seconds(2.5e-6);
  EXPECT_NEAR(microseconds(bf16_product(1280, 640, 1000), device), 23.5, 1e-6);
}

// The same product's D at 100 units that drain 0.2048 GB/s each: 1.6384 MB take 80 µs; ⁴√(80⁴ + 16.384⁴) = 80.0351. What is added to is
// read at the memory's bandwidth, 0.1 TB/s: A, B and D are 54.784 µs, with the 80 that D is written in ⁴√(134.784⁴ + 16.384⁴) = 134.7914. A
// drain that is faster than the memory is the memory's: 54.893 as in TrafficBounds.
TEST(Products, UnitsDrainResults) {
  Accelerator device = plain_device();
  Product product = bf16_product(1280, 640, 1000);
  device.gemm.kernels[0].drain.value = BytesPerSecond(0.2048e9);
  EXPECT_NEAR(microseconds(product, device), 80.0351, 1e-3);
  device.memory_bandwidth.value = BytesPerSecond(0.1e12);
  product.accumulates = true;
  EXPECT_NEAR(microseconds(product, device), 134.7914, 1e-3);
  device.gemm.kernels[0].drain.value = BytesPerSecond(2e9);
  product.accumulates = false;
  EXPECT_NEAR(microseconds(product, device), 54.893, 1e-3);
}

// One tile of k = 12,800 takes 209.7152 µs; split by 48 (266.67 of k each) 4.36907 µs, and then the parts are added: a start of 2 µs and
// 128·64·(48·4 + 2) B = 1.589 MB at 1 TB/s, 1.58925 µs. Operands and result, (128 + 64)·12800·2 + 128·64·2 B = 4.93 MB, are 4.93158 µs:
// ⁴√(4.36907⁴ + 4.93158⁴) = 5.56032. Fewer parts are slower.
TEST(Products, SplitsALongSum) {
  Accelerator device = plain_device();
  device.memory_bandwidth.value = BytesPerSecond(1e12);
  device.gemm.reduction.value = Seconds(2e-6);
  const ProductPlan plan = plan_product(bf16_product(128, 64, 12800), device);
  EXPECT_EQ(plan.split, 48);
  EXPECT_NEAR(plan.time().value / kMicro, 5.56032 + 2 + 1.589248, 1e-4);
  EXPECT_EQ(plan_product(bf16_product(1280, 640, 12800), device).split, 1) << "a full wave gains nothing";
}

// p − (1 − s)/s · (1 − q) with p = 1.2, q = 0.7: at s = 0.6 exactly 1, at 0.75 it is 1.1, of nothing but products 1.2.
TEST(Products, PowerStretchesWhatDrawsIt) {
  const Accelerator device = plain_device();
  const Product product = bf16_product(1280, 640, 1000);
  EXPECT_NEAR(microseconds(product, device, 0.3), 16.384, 1e-6);
  EXPECT_NEAR(microseconds(product, device, 0.6), 16.384, 1e-6);
  EXPECT_NEAR(microseconds(product, device, 0.75), 16.384 * 1.1, 1e-6);
  EXPECT_NEAR(microseconds(product, device, 1), 16.384 * 1.2, 1e-6);
}

// Narrow loads: the family whose need is the widest that the alignment allows, of that layout.
TEST(Products, AlignmentAndLayoutChooseTheKernels) {
  Accelerator device = plain_device();
  ProductKernels narrow = device.gemm.kernels[0], single = narrow;
  narrow.name = "narrow", narrow.alignment = 4, narrow.rates[0].share.value = 0.5;
  single.name = "single", single.alignment = 1, single.rates[0].share.value = 0.25, single.layouts = {"TN"};
  device.gemm.kernels.push_back(narrow);
  device.gemm.kernels.push_back(single);
  Product product = bf16_product(1280, 640, 1000);
  product.alignment = 8;
  EXPECT_EQ(plan_product(product, device).kernels->name, "narrow");
  product.alignment = 2, product.transpose_a = true;
  EXPECT_EQ(plan_product(product, device).kernels->name, "single");
  EXPECT_NEAR(microseconds(product, device), 4 * 16.384, 1e-6);
  product.transpose_a = false;
  EXPECT_THROW(plan_product(product, device), Error) << "no kernel of that layout";
}

TEST(Products, ArithmeticWithoutKernelsIsRefusedByName) {
  Accelerator device = plain_device();
  Product product = bf16_product(64, 64, 64);
  product.a = product.b = DType::fp16;
  try {
    plan_product(product, device);
    FAIL() << "fp16 has no kernels here";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused);
    EXPECT_NE(error.message().find("fp16"), std::string::npos) << error.what();
  }
}

TEST(Products, NothingTakesNoTime) { EXPECT_EQ(price(bf16_product(0, 64, 64), plain_device()).value, 0); }

// The kernels of groups are slower than those of one product; a single group is one product.
TEST(Products, OneGroupIsAPlainProduct) {
  const Accelerator device = load_accelerator("mi355x");
  Product product = linear_product(MathType::bf16, 8192, 8192, 8192);
  const double plain = price(product, device).value;
  product.grouped = true;
  EXPECT_EQ(price(product, device).value, plain);
  product.batch = 2;
  EXPECT_GT(price(product, device).value, 2 * plain);
}

// Each device has kernels for every arithmetic of its sheet, at any alignment and layout; narrower loads are never faster.
TEST(Products, EveryShippedDeviceMultipliesWhatItsSheetSays) {
  for (const auto& name : shipped_accelerators()) {
    const Accelerator device = load_accelerator(name);
    for (const auto& rate : device.rates)
      for (const char* layout : {"TN", "NN", "NT"}) {
        if (rate.type == MathType::fp6) continue;  // no tensor has it
        Product product = linear_product(rate.type, 4096, 4096, 4096);
        product.transpose_a = layout[0] == 'T', product.transpose_b = layout[1] == 'T';
        double last = 0;
        for (const std::int16_t alignment : {16, 4, 1}) {
          product.alignment = alignment;
          const double time = price(product, device).value;
          EXPECT_GE(time, last) << name << " " << name_of(rate.type) << " " << layout << " " << alignment;
          last = time;
        }
      }
  }
}

// ---- convolutions ----------------------------------------------------------------------------------------------------

// ViT-B/16 on 128 images of 224 × 224: 768 filters of 16 × 16 over three channels, padded to eight in bf16; 196 places an image. Forward walks
// the filter's 256 places one by one, 32 channels a step.
TEST(Convolutions, AreImplicitProducts) {
  Convolution patch{Convolution::Pass::forward, DType::bf16, 128, 3, 768, 1, 224 * 224, 196, 256, true};
  Product product = as_product(patch);
  EXPECT_EQ(product.m, 768);
  EXPECT_EQ(product.n, 128 * 196);
  EXPECT_EQ(product.k, 32 * 256);
  patch.pass = Convolution::Pass::weight_gradient;
  product = as_product(patch);
  EXPECT_EQ(product.m, 8 * 256);
  EXPECT_EQ(product.n, 768);
  EXPECT_EQ(product.k, 128 * 196);
  // Windows do not overlap here: every place of the image is under one place of one window, 768 filters deep.
  patch.pass = Convolution::Pass::input_gradient;
  product = as_product(patch);
  EXPECT_EQ(product.m, 8);
  EXPECT_EQ(product.n, 128 * 224 * 224);
  EXPECT_EQ(product.k, 768);
}

// The same on the H100 whose step it was measured in: 681 and 230 µs (with the parts added).
TEST(Convolutions, PatchesOfAVisionTransformerTakeWhatTheyTook) {
  const Accelerator device = load_accelerator("h100-sxm");
  Convolution patch{Convolution::Pass::forward, DType::bf16, 128, 3, 768, 1, 224 * 224, 196, 256, true};
  EXPECT_NEAR(price(patch, device).value / kMicro, 681, 0.1 * 681);
  patch.pass = Convolution::Pass::weight_gradient;
  EXPECT_NEAR(price(patch, device).value / kMicro, 230, 0.1 * 230);
}

// A 7 x 7 filter over each of 96 channels of 64 images of 56 x 56 alone: 944 M places of windows, ten instructions each, beside 77 MB. Twice the
// channels take twice as long, where products of groups padded to 32 channels took 20 times that.
TEST(Convolutions, ChannelsAloneAreNoProducts) {
  const Accelerator device = load_accelerator("h100-sxm");
  Convolution each{Convolution::Pass::forward, DType::bf16, 64, 96, 96, 96, 56 * 56, 56 * 56, 49, true};
  const auto& law = cost::kernel_constants().depthwise;
  const double once = price(each, device).value - law.start.value;
  EXPECT_GT(once, cost::issue_time(device, law.instructions * 64 * 96 * 56 * 56 * 49).value);
  EXPECT_LT(once / kMicro, 500);
  each.in = each.out = each.groups = 192;
  EXPECT_NEAR(price(each, device).value - law.start.value, 2 * once, 1e-3 * once);
}

// ---- silicon ---------------------------------------------------------------------------------------------------------

struct Measured {
  std::string device, where;
  MathType type = MathType::bf16;
  Product product;
  double share = 0, us = 0;
};

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

MathType math_named(const std::string& name) {
  for (int i = 0; i < 9; ++i)
    if (name_of(static_cast<MathType>(i)) == name) return static_cast<MathType>(i);
  throw Error(ErrorCode::internal, "no arithmetic " + name);
}

Measured row_of(const std::vector<std::string>& f) {
  Measured row{f[0], f[1], math_named(f[2]), {}, std::stod(f[10]), std::stod(f[11])};
  row.product = linear_product(row.type, std::stoll(f[6]), std::stoll(f[5]), std::stoll(f[7]), std::stoll(f[8]));
  row.product.transpose_a = f[4][0] == 'T', row.product.transpose_b = f[4][1] == 'T';
  row.product.alignment = static_cast<std::int16_t>(std::stoi(f[9]));
  row.product.scaling = f[3] == "row" ? Scaling::row : f[3] == "tensor" ? Scaling::tensor : Scaling::none;
  return row;
}

std::vector<Measured> measured_products() {
  std::istringstream lines(read_text_file(PLIMSOLL_SOURCE_DIR "/tests/cost/data/products.csv", 1 << 20));
  std::vector<Measured> rows;
  bool header = true;
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == '#') continue;
    if (!header) rows.push_back(row_of(fields_of(line)));
    header = false;
  }
  return rows;
}

/// What the row's clock would show. In a graph nothing but the product runs: the share is that of its own arithmetic; 0.25 µs pass
/// between two kernels, and the board's limit bites within about 13 ms, of the 72 launches that were replayed.
double predicted(const Measured& row, const Accelerator& device) {
  if (row.where == "step") return microseconds(row.product, device, row.share);
  const double alone = microseconds(row.product, device);
  if (row.where == "alone") return alone + 1;  // an event on either side
  if (row.where.rfind("call", 0) == 0) return alone + 15;  // issued and waited for by the host
  const ProductPlan plan = plan_product(row.product, device);
  const double flops = 2.0 * static_cast<double>(row.product.m) * static_cast<double>(row.product.n * row.product.batch) *
                       static_cast<double>(row.product.k);
  const double busy = flops / (device.peak(row.type).value * plan.kernels->rate(row.type, row.product.scaling)->share.value) / kMicro;
  const double limited = microseconds(row.product, device, std::min(1.0, busy / alone));
  return alone + (limited - alone) * (1 - std::exp(-72 * alone / 13e3)) + 0.25;
}

struct Quantiles {
  std::size_t count;
  double median, ninetieth;
};

Quantiles quantiles_of(std::vector<double> errors) {
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double share) { return errors[static_cast<std::size_t>(share * static_cast<double>(errors.size() - 1))]; };
  return {errors.size(), at(0.5), at(0.9)};
}

// Bounds on |predicted / measured − 1|, median and nine in ten. They may only fall.
TEST(Products, AgreeWithSilicon) {
  struct Bound {
    const char* key;
    double median, ninetieth;
  };
  std::map<std::string, Accelerator> devices;
  std::map<std::string, std::vector<double>> errors;
  for (const Measured& row : measured_products()) {
    const Accelerator& device = devices.try_emplace(row.device, load_accelerator(row.device)).first->second;
    const double error = std::abs(predicted(row, device) / row.us - 1);
    const std::string alignment = row.product.alignment == 16 ? "" : " not aligned";
    for (const std::string& key :
         {row.device + " " + row.where, row.device + " " + row.where + " " + std::string(name_of(row.type)) + alignment})
      errors[key].push_back(error);
  }
  constexpr Bound kBounds[] = {{"h100-sxm step", 0.05, 0.15},
                               {"h100-sxm step bf16", 0.03, 0.11},
                               {"h100-sxm graph", 0.05, 0.15},
                               {"h100-sxm graph bf16 not aligned", 0.05, 0.15},
                               {"h100-sxm alone", 0.05, 0.15},
                               {"h200 graph", 0.05, 0.16},
                               {"h200 graph bf16 not aligned", 0.05, 0.15},
                               {"h200 alone", 0.05, 0.15},
                               {"a100-40gb call linear", 0.04, 0.11},
                               {"a100-40gb call scores", 0.16, 0.23},
                               {"a100-40gb call values", 0.05, 0.08},
                               {"a100-40gb call odd", 0.04, 0.06},
                               {"a100-80gb-sxm graph", 0.07, 0.17},
                               {"a100-80gb-sxm graph short", 0.12, 0.21}};
  for (const Bound& bound : kBounds) {
    ASSERT_GT(errors[bound.key].size(), 5u) << bound.key;
    const Quantiles found = quantiles_of(errors[bound.key]);
    EXPECT_LE(found.median, bound.median) << bound.key << " over " << found.count;
    EXPECT_LE(found.ninetieth, bound.ninetieth) << bound.key << " over " << found.count;
  }
  for (const auto& [key, list] : errors) {
    const Quantiles found = quantiles_of(list);
    RecordProperty(key, std::to_string(found.count) + " rows: " + std::to_string(found.median) + " " + std::to_string(found.ninetieth));
  }
}

// MooreThreads/SimuMax v1.2 (4dcaae5), configs/system/b200_bf16_ceperm.json: Transformer Engine's products in bf16 on a B200, loops of one
// product that ran at the power limit. Of 232 that took longer than a millisecond every twentieth or so, in microseconds.
TEST(Products, LongOnesOnAB200TakeWhatThePowerLimitLeaves) {
  struct Row {
    std::int64_t rows, in, out;
    char layout;  ///< of the forward, the input's gradient, the weight's
    bool fp32;
    double us;
  };
  constexpr Row kRows[] = {
      {4096, 8192, 57344, 'f', false, 3514.3},  {4096, 16384, 20480, 'f', false, 2294.1}, {4096, 16384, 8192, 'i', false, 1033.8},
      {32128, 4096, 16384, 'w', true, 4236.3},  {4096, 7168, 129280, 'f', false, 6897.0}, {16384, 4096, 13312, 'w', false, 1691.6},
      {10240, 32768, 16384, 'w', true, 9939.5}, {2048, 26624, 16384, 'i', false, 1618.2}, {32768, 4096, 8192, 'f', false, 1975.9},
      {64128, 8192, 8192, 'w', true, 8597.2},   {8192, 8192, 16384, 'f', false, 2050.8}};
  const Accelerator device = load_accelerator("b200");
  std::vector<double> errors;
  for (const Row& row : kRows) {
    Product product = bf16_product(row.out, row.rows, row.in);
    product.transpose_a = row.layout == 'f';
    product.transpose_b = row.layout == 'w';
    product.accumulates = row.layout == 'w';
    if (row.fp32) product.result = DType::fp32;
    errors.push_back(std::abs(price(product, device, {.matrix_share = 1}).value * 1e6 / row.us - 1));
  }
  const Quantiles found = quantiles_of(errors);
  EXPECT_LE(found.median, 0.05);
  EXPECT_LE(found.ninetieth, 0.12);
}

// The same table, experts of one launch: the products of a group reach 0.84 of a dense one's rate.
TEST(Products, GroupsOnAB200HaveKernelsOfTheirOwn) {
  const Accelerator device = load_accelerator("b200");
  Product dense = bf16_product(4096, 16 * 1024, 8192);
  Product grouped = bf16_product(4096, 1024, 8192);
  grouped.batch = 16;
  grouped.grouped = true;
  EXPECT_NEAR(plan_product(dense, device).compute / plan_product(grouped, device).compute, 0.84, 0.01);
}

}  // namespace
}  // namespace plimsoll
