#include <gtest/gtest.h>

#include <cmath>

#include "cost/kernel_constants.hpp"
#include "cost/memory_time.hpp"
#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kMillion = 1'000'000;

/// 100 units of 1 GHz that issue 128 lanes: 12.8e12 lane instructions a second; 1 TB/s, a cache of 10 MB that holds nothing of what the
/// tests move (more than 15.7 MB).
Accelerator plain_device() {
  Accelerator device = load_accelerator("h100-sxm");
  device.compute_units = 100;
  device.clock.value = Hertz(1e9);
  device.memory_bandwidth.value = BytesPerSecond(1e12);
  device.memory_efficiency.value = 1;
  device.last_level_cache.value = Bytes(10 * kMillion);
  return device;
}

double us(Seconds time) { return time.value * 1e6; }

Operand contiguous(std::int64_t elements, DType type) { return {elements, type, Walk::contiguous}; }

Pointwise map(std::int64_t elements, Operands operands, std::uint8_t dimensions = 1) {
  return {Pointwise::Form::map, elements, std::move(operands), dimensions};
}

const cost::KernelConstants& constants() { return cost::kernel_constants(); }

// 100 M elements of bf16, two read and one written: 600 MB at 1 TB/s are 600 us after the start.
TEST(Pointwise, ContiguousOnesAreBoundByTheirBytes) {
  const Operand x = contiguous(100 * kMillion, DType::bf16);
  EXPECT_NEAR(us(price(map(x.elements, {{x, x}, {x}}), plain_device())), us(constants().pointwise.contiguous.start) + 600, 1e-6);
}

// bf16 to fp32 goes through the casting loader: instructions (a + b · operands) · 100 M / 12.8e12, in quadrature with 600 us of bytes;
// fp32 to bf16 has a kernel of its own and is bound by its bytes.
TEST(Pointwise, CastsToAWiderTypeAreIssued) {
  const Accelerator device = plain_device();
  const Operand narrow = contiguous(100 * kMillion, DType::bf16), wide = contiguous(100 * kMillion, DType::fp32);
  const auto& laws = constants().pointwise;
  const double issue = (laws.casting.instructions + 2 * laws.casting_per_operand) * 100 * kMillion / 12.8e12 * 1e6;
  EXPECT_NEAR(us(price(map(narrow.elements, {{narrow}, {wide}}), device)), us(laws.casting.start) + std::hypot(issue, 600.0), 1e-6);
  EXPECT_NEAR(us(price(map(narrow.elements, {{wide}, {narrow}}), device)), us(laws.contiguous.start) + 600, 1e-6);
}

// A comparison's result and a mask are the functor's own types: no cast.
TEST(Pointwise, BooleansBesideOtherTypesAreNoCast) {
  const Accelerator device = plain_device();
  const Operand x = contiguous(100 * kMillion, DType::fp32), flag = contiguous(100 * kMillion, DType::boolean);
  const double start = us(constants().pointwise.contiguous.start);
  EXPECT_NEAR(us(price(map(x.elements, {{x}, {flag}}), device)), start + 500, 1e-6);
  EXPECT_NEAR(us(price(map(x.elements, {{x, flag}, {x}}), device)), start + 900, 1e-6);
  EXPECT_GT(us(price(map(x.elements, {{flag}, {x}}), device)), start + 500);  // a copy of booleans into numbers
}

// A broadcast operand makes every operand walk: its few bytes count once, each dimension and operand costs instructions.
TEST(Pointwise, WalksCostInstructionsByDimensionAndOperand) {
  const Accelerator device = plain_device();
  const Operand x = contiguous(100 * kMillion, DType::bf16);
  const Operand row{1000, DType::bf16, Walk::broadcast};
  const auto& laws = constants().pointwise;
  const auto expected = [&](double dimensions) {
    const double each = laws.walking.instructions + laws.walking_per_dimension * (dimensions - 1) + 3 * laws.walking_per_operand;
    return us(laws.walking.start) + std::hypot(each * 100 * kMillion / 12.8e12 * 1e6, 400.002);
  };
  EXPECT_NEAR(us(price(map(x.elements, {{x, row}, {x}}, 3), device)), expected(3), 1e-3);
  EXPECT_NEAR(us(price(map(x.elements, {{x, row}, {x}}, 0), device)), expected(2), 1e-3);  // not known: rows of a broadcast
  const Operand permuted{100 * kMillion, DType::bf16, Walk::strided};
  EXPECT_GT(us(price(map(x.elements, {{permuted}, {x}}, 0), device)), us(price(map(x.elements, {{permuted}, {x}}, 2), device)));
}

// Neighbours that lie apart in memory: a sector instead of two bytes.
TEST(Pointwise, TransposedOperandsMoveSectors) {
  const Accelerator device = plain_device();
  const Operand x = contiguous(100 * kMillion, DType::bf16), t{100 * kMillion, DType::bf16, Walk::transposed};
  const double sector = static_cast<double>(constants().pointwise.sector.count);
  EXPECT_GT(us(price(map(x.elements, {{t}, {x}}, 2), device)), (sector + 2) * 100);
}

// A generated kernel writes tiles: fewer bytes for each of its 8-bit results than TensorIterator's sector, more than one.
TEST(Pointwise, GeneratedKernelsMoveSectorsOfTheirOwn) {
  const Accelerator device = plain_device();
  const Operand high = contiguous(100 * kMillion, DType::bf16), turned{100 * kMillion, DType::fp8, Walk::transposed};
  const auto& laws = constants().pointwise;
  const Pointwise cast{Pointwise::Form::fused, high.elements, {{high}, {turned}}, 2};
  const double bytes = 2 + static_cast<double>(laws.fused_sector.count);
  EXPECT_NEAR(us(price(cast, device)), us(laws.fused.start) + bytes * 100, 1e-3);
  EXPECT_LT(laws.fused_sector.count, laws.sector.count);
}

// ROCm/TransformerEngine, pull request 89, an MI300X: from 256 x 65,536 to 2,048 x 12,288 elements of bf16 cast to rows and columns of e5m2 the
// time grows from 39.47 to 54.75 us. NVIDIA's kernel goes as fast as its bytes, and so does one that writes rows alone.
TEST(Pointwise, RocmsCastsBothWaysCostInstructions) {
  const auto cast = [](std::int64_t elements, bool both) {
    Pointwise kernel{Pointwise::Form::fused, elements, {{contiguous(elements, DType::bf16)}, {contiguous(elements, DType::fp8)}}, 0};
    if (both) kernel.operands = {{contiguous(elements, DType::bf16)}, {contiguous(elements, DType::fp8), contiguous(elements, DType::fp8)}};
    return kernel;
  };
  const Accelerator mi300x = load_accelerator("mi300x"), h100 = load_accelerator("h100-sxm");
  const std::int64_t few = 256 * 65536, many = 2048 * 12288;
  EXPECT_NEAR(us(price(cast(many, true), mi300x)) - us(price(cast(few, true), mi300x)), 54.75 - 39.47, 1.5);
  const auto once_more = [&](const Accelerator& device) { return us(price(cast(many, true), device)) / us(price(cast(many, false), device)); };
  EXPECT_GT(once_more(mi300x), 2);
  EXPECT_LT(once_more(h100), 1.4) << "4 bytes for 3";
}

// 67.1 MB written at the sheet's bandwidth, here 1 TB/s; bytes of one-byte elements are bound by instructions.
TEST(Pointwise, FillsReadNothing) {
  const Accelerator device = plain_device();
  const Operand x = contiguous(100 * kMillion, DType::fp32), flag = contiguous(100 * kMillion, DType::boolean);
  EXPECT_NEAR(us(price(map(x.elements, {{}, {x}}), device)), us(constants().fill.start) + 400, 1e-6);  // 140.6 us of instructions
  EXPECT_NEAR(us(price(map(flag.elements, {{}, {flag}}), device)), us(constants().fill.start) + 140.625, 1e-6);
}

// On the H100 3 of 50 MiB are found in the cache, 400 MB are not.
TEST(Cache, HoldsWhatIsSmall) {
  const Accelerator device = load_accelerator("h100-sxm");
  EXPECT_EQ(cost::cold_share(device, 3e6), 0);
  EXPECT_EQ(cost::cold_share(device, 400e6), 1);
  const double between = cost::cold_share(device, 50e6);
  EXPECT_GT(between, 0);
  EXPECT_LT(between, 1);
  EXPECT_LT(cost::traffic_time(device, 3e6, 0.0).value, cost::traffic_time(device, 3e6, 1.0).value);
}

Reduction sum(Reduction::Axis axis, std::int64_t outputs, std::int64_t reduced) {
  return {axis, outputs, reduced, {{contiguous(outputs * reduced, DType::fp32)}, {contiguous(outputs, DType::fp32)}}};
}

// 8192 rows of 768 columns: 6 blocks side by side, threads of 2048 rows, so min(⌈1600 / 6⌉, 2048 / 16) = 128 parts, 768 blocks; 25.17 MB.
TEST(Reduction, ColumnSumsAreSplitIntoParts) {
  const auto& laws = constants().reduction;
  const double instructions = laws.outer_result * 768 / 12.8e12;
  const double bytes = (8192.0 * 768 + 768) * 4 / 1e12;
  const double meeting = 128 * laws.outer_part.value + 768 * laws.outer_block.value;
  const double expected = laws.outer_start.value + meeting + std::hypot(instructions, bytes);
  EXPECT_NEAR(us(price(sum(Reduction::Axis::outer, 768, 8192), plain_device())), expected * 1e6, 1e-6);
  // 512 rows are one chain of 128 a thread.
  const double short_bytes = us(cost::traffic_time(plain_device(), (512.0 * 1024 + 1024) * 4, KernelKind::reduction));
  const double short_issue = laws.outer_result * 1024 / 12.8e12 * 1e6;
  EXPECT_NEAR(us(price(sum(Reduction::Axis::outer, 1024, 512), plain_device())),
              us(laws.outer_start) + 128 * us(laws.outer_element) + std::hypot(short_issue, short_bytes), 1e-6);
}

RowWise rows(RowWise::Function function, std::int64_t rows, std::int64_t columns) {
  const Operand x = contiguous(rows * columns, DType::fp32);
  return {function, rows, columns, {{x}, {x}}};
}

// A row of 128,256 logits (513 kB) fits no shared memory, 200 of them no cache: three reads and a write, as the H100 moves 16.8 GB for
// 8192 rows in 5551 us. A row of 2048 is read once.
TEST(RowWise, LongRowsAreReadThrice) {
  const Accelerator device = plain_device();
  const double issue = constants().row_wise.softmax_instructions * 8192 * 128256 / 12.8e12 * 1e6;
  const double start = us(constants().row_wise.softmax_start);
  EXPECT_NEAR(us(price(rows(RowWise::Function::log_softmax, 8192, 128256), device)),
              start + std::hypot(issue, 4.0 * 8192 * 128256 * 4 / 1e12 * 1e6), 1e-3);
  const double short_issue = constants().row_wise.softmax_instructions * 131072 * 2048 / 12.8e12 * 1e6;
  EXPECT_NEAR(us(price(rows(RowWise::Function::log_softmax, 131072, 2048), device)),
              start + std::hypot(short_issue, 2.0 * 131072 * 2048 * 4 / 1e12 * 1e6), 1e-3);
}

// 8 bits with a scale of one byte for 32 elements move 2 + 33/32 bytes an element, 4 bits with one for 16 move 2 + 9/16. What is written
// transposed was turned by a Hadamard transform and is issued too: the greatest value alone, columns, or columns beside the rows.
TEST(RowWise, TransformedColumnsAreIssued) {
  const Accelerator device = plain_device();
  const auto& laws = constants().row_wise;
  const std::int64_t rows = 8192, columns = 8192, elements = rows * columns, four_bits = elements / 16 * 9;
  const auto quantized = [&](std::initializer_list<Operand> written) {
    return us(price(RowWise{RowWise::Function::quantize, rows, columns, {{contiguous(elements, DType::bf16)}, written}}, device));
  };
  const auto turned = [](std::int64_t count, DType type) { return Operand{count, type, Walk::transposed}; };
  const double moved = 1e-6 * static_cast<double>(elements), start = us(laws.quantization_start);
  const auto issued = [&](double instructions) { return instructions * static_cast<double>(elements) / 12.8e12 * 1e6; };
  EXPECT_NEAR(quantized({contiguous(elements + elements / 32, DType::fp8)}), start + moved * (2 + 33.0 / 32), 1e-3);
  EXPECT_NEAR(quantized({contiguous(four_bits, DType::fp8)}), start + moved * (2 + 9.0 / 16), 1e-3);
  EXPECT_NEAR(quantized({turned(1, DType::fp32)}), start + std::hypot(issued(laws.hadamard_greatest), 2 * moved), 1e-3);
  EXPECT_NEAR(quantized({turned(four_bits, DType::fp8)}), start + std::hypot(issued(laws.hadamard_columns), moved * (2 + 9.0 / 16)), 1e-3);
  EXPECT_NEAR(quantized({contiguous(four_bits, DType::fp8), turned(four_bits, DType::fp8)}),
              start + std::hypot(issued(laws.hadamard_both_ways), moved * (2 + 18.0 / 16)), 1e-3);
}

// 768 columns are 24 blocks, each of which walks over all rows, however fast the memory is.
TEST(RowWise, WeightGradientsOfNormsWalkOverAllRows) {
  const auto& laws = constants().row_wise;
  EXPECT_NEAR(us(price(rows(RowWise::Function::norm_weight_backward, 16384, 768), load_accelerator("h100-sxm"))),
              us(laws.weight_gradient_start) + 16384 * us(laws.weight_gradient_row), 1e-6);
}

// 320 chunks of 65,536 elements of fp32 read and written: 167.8 MB. One small tensor takes as long as its share of one chunk.
TEST(MultiTensor, ChunksAreOneBlockEach) {
  const Accelerator device = plain_device();
  const auto& laws = constants().multi_tensor;
  const Operand all = contiguous(320 * 65536, DType::fp32), few = contiguous(65536, DType::fp32);
  const MultiTensor launch{MultiTensor::Function::map, 1, all.elements, {{all}, {all}}};
  EXPECT_NEAR(us(price(launch, device)), us(laws.start) + 167.77216, 1e-6);
  EXPECT_NEAR(us(price(MultiTensor{MultiTensor::Function::map, 1, few.elements, {{few}, {few}}}, device)),
              us(laws.chunk_start) + 2 * us(laws.chunk_per_operand), 1e-6);
}

// A copy that converts issues its instructions for each element, one within a type for each sixteen bytes: 100 M bytes read and written at
// 1 TB/s are 200 us and hardly more.
TEST(MultiTensor, CopiesWithinATypeMoveVectors) {
  const Accelerator device = plain_device();
  const auto& laws = constants().multi_tensor;
  const Operand bytes = contiguous(100 * kMillion, DType::uint8), wide = contiguous(100 * kMillion, DType::fp32);
  const auto expected = [&](double instructions, double moved) {
    return us(laws.start) + std::hypot(us(cost::issue_time(device, instructions * 100 * kMillion)), moved);
  };
  const MultiTensor same{MultiTensor::Function::copy, 9, bytes.elements, {{bytes}, {bytes}}};
  EXPECT_NEAR(us(price(same, device)), expected(laws.copy_instructions / 16, 200), 1e-3);
  const MultiTensor converting{MultiTensor::Function::copy, 9, bytes.elements, {{bytes}, {wide}}};
  EXPECT_NEAR(us(price(converting, device)), expected(laws.copy_instructions, 500), 1e-3);
}

// Rows of an index come out of memory, however few they are.
TEST(Gather, ReadsAreNeverInTheCache) {
  const Operand rows = contiguous(kMillion, DType::bf16);
  const double start = us(constants().gather[static_cast<std::size_t>(Gather::Function::embedding)].start);
  EXPECT_NEAR(us(price(Gather{Gather::Function::embedding, kMillion, {{rows}, {rows}}}, plain_device())), start + 4, 1e-6);
}

// A calibrated device's curve stands for the bytes, less the start that it begins with.
// 54 instructions for each of 100 M elements at 12.8e12 a second: 421.9 us, longer than 400 MB at 1 TB/s take; the law overlaps both.
TEST(Gather, RowsOfTokensAreIssued) {
  const Operand rows = contiguous(100 * kMillion, DType::bf16);
  const Seconds moved = price(Gather{Gather::Function::permute, rows.elements, {{rows}, {rows}}}, plain_device());
  const Seconds issued = cost::issue_time(plain_device(), 54.0 * 100 * kMillion);
  EXPECT_NEAR(us(issued), 421.875, 1e-3);
  EXPECT_GE(moved, issued);
  EXPECT_NEAR(us(moved), us(constants().gather[8].start + cost::overlapped(issued, Seconds(400e-6))), 1e-3);
}

TEST(Streaming, MeasuredCurvesReplaceTheBandwidth) {
  Accelerator device = plain_device();
  const std::vector<StreamingCurve::Point> points{{Bytes(0), Seconds(2e-6)}, {Bytes(1'000'000'000), Seconds(502e-6)}};
  device.streaming.push_back({"elementwise", Provenance::measured, "machine", points});
  const Operand x = contiguous(100 * kMillion, DType::bf16);
  EXPECT_NEAR(us(price(map(x.elements, {{x, x}, {x}}), device)), us(constants().pointwise.contiguous.start) + 300, 1e-6);
}

}  // namespace
}  // namespace plimsoll
