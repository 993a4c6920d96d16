// From a record to a StepProgram.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/rehearse.hpp"
#include "program/optimizers/host_optimizer.hpp"
#include "rehearse/record_writer.hpp"

namespace plimsoll::rehearse {
namespace {

Recording read(const RecordWriter& writer) {
  const TemporaryFile file(writer.bytes());
  return read_recording(file.path());
}

constexpr std::uint64_t kMiB = 1 << 20;

/// A parameter of 4 MiB; each step an activation of 2, a gradient of 4 that dies when the next step's has come, and in the first step an
/// optimizer state of 8. `steps` of them.
RecordWriter training(int steps) {
  RecordWriter writer;
  writer.segment(record::SegmentAction::allocate, 20 * kMiB).allocate(0x1000, 4 * kMiB);
  std::uint64_t gradient = 0;
  for (int step = 0; step < steps; ++step) {
    writer.phase("forward").allocate(0x2000, 2 * kMiB).gemm(64, 32, 16);
    writer.phase("backward");
    const std::uint64_t next = 0x10000u + static_cast<std::uint64_t>(step) * 0x1000u;
    writer.allocate(next, 4 * kMiB).gemm(16, 32, 64).free(0x2000, 2 * kMiB);
    if (gradient != 0) writer.free(gradient, 4 * kMiB);
    gradient = next;
    writer.phase("optimizer");
    if (step == 0) writer.allocate(0x3000, 8 * kMiB);
    writer.step_end();
  }
  return writer;
}

/// Peaks by hand: step 1 holds 4 + 2 + 4 in backward, then 4 + 4 + 8 in the optimizer = 16 MiB; later steps 16 + 2 + 4 = 22 MiB.
TEST(Recording, PeaksOfSteps) {
  const Recording recording = read(training(4));
  ASSERT_EQ(recording.steps.size(), 4u);
  EXPECT_TRUE(recording.has_blocks);
  EXPECT_EQ(recording.steps[0].peak_allocated, Bytes(16 * kMiB));
  EXPECT_EQ(recording.steps[3].peak_allocated, Bytes(22 * kMiB));
  EXPECT_EQ(recording.peak_allocated(), Bytes(22 * kMiB));
  EXPECT_EQ(recording.steps[3].allocated, Bytes(16 * kMiB));
  EXPECT_EQ(recording.peak_reserved(), Bytes(20 * kMiB));
}

/// 2·m·n·k: two products of 64·32·16 in a step.
TEST(Recording, WorkOfAStep) {
  const Recording recording = read(training(2));
  EXPECT_EQ(recording.steps[1].work.gemms, 2);
  EXPECT_EQ(recording.steps[1].work.launches, 2);
  EXPECT_EQ(recording.steps[1].work.gemm_flops, 2 * 2.0 * 64 * 32 * 16);
}

/// Eight operators and three calls of modules in a forward pass of three products: before these 2, 3 and 3 of the ones and one each of the
/// others, of the backward pass' four nodes two before each of two products. What no phase of the step has is nowhere, and no program that
/// does not count its host has any.
TEST(Recording, WorkOfTheHostLiesAmongThePhasesLaunches) {
  RecordWriter writer;
  for (int step = 0; step < 2; ++step) {
    writer.phase("forward").gemm(64, 32, 16).gemm(64, 32, 16).gemm(64, 32, 16);
    writer.phase("backward").gemm(16, 32, 64).gemm(16, 32, 64);
    writer.step_end();
  }
  const auto is_host = [](const Instruction& each) { return each.kind == InstructionKind::host; };
  const StepProgram uncounted = read(writer).program;
  EXPECT_TRUE(std::none_of(uncounted.step.begin(), uncounted.step.end(), is_host));
  writer.mark(record::MarkKind::text, "host work forward operation", 8).mark(record::MarkKind::text, "host work forward module", 3);
  writer.mark(record::MarkKind::text, "host work backward backward_node", 4)
      .mark(record::MarkKind::text, "host work optimizer optimizer", 1);
  std::vector<std::pair<HostWork, std::int64_t>> work;
  for (const Instruction& each : read(writer).program.step)
    if (each.kind == InstructionKind::host) work.emplace_back(static_cast<HostWork>(each.id), each.bytes);
  const std::vector<std::pair<HostWork, std::int64_t>> expected{
      {HostWork::module, 1}, {HostWork::operation, 2}, {HostWork::module, 1},        {HostWork::operation, 3},
      {HostWork::module, 1}, {HostWork::operation, 3}, {HostWork::backward_node, 2}, {HostWork::backward_node, 2}};
  EXPECT_EQ(work, expected);
}

/// Twelve operators were counted in a step of four products, validation in it; of the two that the played step has, six.
TEST(Recording, WorkOfTheHostIsThatOfTheLaunchesItWasCountedOf) {
  RecordWriter writer;
  for (const int products : {2, 4, 2}) {
    if (products == 4) writer.mark(record::MarkKind::text, "host count");
    writer.phase("forward");
    for (int i = 0; i < products; ++i) writer.gemm(64, 32, 16);
    writer.step_end();
    if (products == 4) writer.mark(record::MarkKind::text, "host work forward operation", 12);
  }
  std::int64_t operations = 0;
  for (const Instruction& each : read(writer).program.step)
    if (each.kind == InstructionKind::host) operations += each.bytes;
  EXPECT_EQ(operations, 6);
}

/// The program leaves what it found: played over and over it reaches what was recorded, although the gradient outlives its step.
TEST(Recording, ItsProgramPlaysAgain) {
  const Recording recording = read(training(4));
  PlayMemoryOptions options;
  options.steps = 6;
  const MemoryTrace trace = play_memory(recording.program, options);
  EXPECT_EQ(trace.peak_allocated, Bytes(22 * kMiB));
  EXPECT_EQ(trace.persistent, Bytes(16 * kMiB));
  EXPECT_EQ(trace.at_peak[Category::parameter], Bytes(4 * kMiB));
  EXPECT_EQ(trace.at_peak[Category::optimizer_state], Bytes(8 * kMiB));
  EXPECT_EQ(trace.at_peak[Category::activation], Bytes(2 * kMiB));
  EXPECT_EQ(trace.at_peak[Category::gradient], Bytes(8 * kMiB));  // the old and the new
}

/// A process with a parameter of 4 MiB on one device and of 6 on another, and a product on each: two memories, one program of both. The
/// failed allocation was the second device's.
TEST(Recording, DevicesAreApart) {
  RecordWriter writer;
  const auto block = [&](std::uint8_t device, std::uint64_t address, std::uint64_t bytes) {
    record::Block event{};
    event.header.device = device;
    event.action = record::BlockAction::allocate;
    event.address = address;
    event.bytes = bytes;
    writer.write(record::Kind::block, event);
    record::Segment segment{};
    segment.header.device = device;
    segment.action = record::SegmentAction::allocate;
    segment.bytes = 2 * bytes;
    writer.write(record::Kind::segment, segment);
  };
  const auto product = [&](std::uint8_t device) {
    record::Gemm event{};
    event.header.device = device;
    event.m = event.n = event.k = 16;
    event.batch = 1;
    event.a = event.b = event.c = event.d = record::Type::bf16;
    writer.write(record::Kind::gemm, event);
  };
  block(0, 0x1000, 4 * kMiB);
  block(3, 0x9000000, 6 * kMiB);
  writer.phase("forward");
  product(0), product(3), product(3);
  writer.step_end().mark(record::MarkKind::text,
                         R"(summary {"versions":{},"error":{"type":"E","message":"","stack":[]},"out_of_memory":{"device":3,"stack":[]}})");
  const TemporaryFile file(writer.bytes());
  const std::vector<Recording> devices = read_devices(file.path());
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1].device, 3);
  EXPECT_EQ(devices[0].peak_allocated(), Bytes(4 * kMiB));
  EXPECT_EQ(devices[1].peak_allocated(), Bytes(6 * kMiB));
  EXPECT_EQ(devices[1].peak_reserved(), Bytes(12 * kMiB));
  EXPECT_FALSE(devices[0].out_of_memory);
  EXPECT_TRUE(devices[1].out_of_memory);
  for (const Recording& each : devices) {
    EXPECT_EQ(each.steps.front().work.gemms, 3);
    EXPECT_EQ(each.elsewhere, (std::vector<bool>{false, true})) << "its own stream comes first";
  }
  EXPECT_EQ(read_recording(file.path()).peak_allocated(), Bytes(10 * kMiB)) << "of all, where nobody asks for one";
}

/// Set-up holds 4 MiB; saving, within the second step, 4 + 6 on top of what the step has; training's own 7 belong to neither.
TEST(Recording, WhatIsDoneBesideTrainingHasItsPeaks) {
  RecordWriter writer;
  writer.allocate(0x1000, 4 * kMiB);
  for (int step = 0; step < 2; ++step) {
    writer.phase("forward").allocate(0x2000, 7 * kMiB).gemm(1, 1, 1).free(0x2000, 7 * kMiB);
    if (step == 1) {
      writer.mark(record::MarkKind::text, "activity saving").allocate(0x3000, 6 * kMiB).free(0x3000, 6 * kMiB);
      writer.mark(record::MarkKind::text, "activity ");
    }
    writer.step_end();
  }
  const Recording recording = read(writer);
  ASSERT_EQ(recording.activities.size(), 2u);
  EXPECT_EQ(recording.activities[0].name, "set-up");
  EXPECT_EQ(recording.activities[0].peak_allocated, Bytes(4 * kMiB));
  EXPECT_EQ(recording.activities[1].name, "saving");
  EXPECT_EQ(recording.activities[1].peak_allocated, Bytes(10 * kMiB));
  EXPECT_EQ(recording.steps[1].peak_allocated, Bytes(11 * kMiB));
}

/// Four steps of one product each, before that of some a pass without gradients of three products.
Recording with_passes_before(std::set<int> steps) {
  RecordWriter writer;
  writer.allocate(0x1000, 4 * kMiB);
  for (int step = 1; step <= 4; ++step) {
    writer.phase("forward");
    if (steps.count(step) != 0) {
      writer.mark(record::MarkKind::text, "activity passes without gradients").allocate(0x3000, 9 * kMiB);
      writer.gemm(1, 1, 1).gemm(1, 1, 1).gemm(1, 1, 1).free(0x3000, 9 * kMiB).mark(record::MarkKind::text, "activity ");
    }
    writer.allocate(0x2000, 7 * kMiB).gemm(1, 1, 1).free(0x2000, 7 * kMiB).step_end();
  }
  return read(writer);
}

/// The last step's validation, whose 9 MiB are the highest peak all the same.
TEST(Recording, TheStepThatIsPlayedHasNoValidation) {
  const Recording recording = with_passes_before({4});
  ASSERT_EQ(recording.steps.size(), 4u);
  EXPECT_EQ(recording.steps.back().work.gemms, 1);
  const auto products = [](const std::vector<Instruction>& step) {
    return std::count_if(step.begin(), step.end(), [](const Instruction& each) { return each.kind == InstructionKind::kernel; });
  };
  EXPECT_EQ(products(recording.program.step), 1);
  EXPECT_EQ(products(recording.program.first_step), 2) << "the two before it";
  EXPECT_EQ(recording.peak_allocated(), Bytes(13 * kMiB));
  ASSERT_EQ(recording.notes.size(), 1u);
  EXPECT_EQ(recording.notes[0].what, "step 3 is the one that is played: those after it have passes without gradients in them");
}

/// Of the three steps behind the first two generate what they train on: the last of all is played.
TEST(Recording, TheStepThatIsPlayedGeneratesWhereMostDo) {
  const Recording recording = with_passes_before({1, 2, 4});
  EXPECT_EQ(recording.steps.back().work.gemms, 4);
  EXPECT_TRUE(recording.notes.empty());
}

TEST(Recording, WithoutAWholeStepHasNone) {
  RecordWriter writer;
  writer.allocate(64, kMiB).phase("forward").gemm(1, 1, 1);
  const Recording recording = read(writer);
  EXPECT_TRUE(recording.steps.empty());
  EXPECT_TRUE(recording.program.step.empty());
  EXPECT_EQ(recording.init_peak_allocated, Bytes(kMiB));
}

record::Mark boundary(std::int64_t number) {
  record::Mark mark{};
  mark.kind = record::MarkKind::step_end;
  mark.value = number;
  return mark;
}

/// Two optimizers step in every turn of the loop: of four boundaries the second and the fourth end steps, of two products each.
TEST(Recording, BoundariesThatEndNoStepAreWithinOne) {
  RecordWriter writer;
  for (std::int64_t number = 1; number <= 4; ++number)
    writer.phase("forward").gemm(64, 32, 16).phase("optimizer").write(record::Kind::mark, boundary(number));
  EXPECT_EQ(read(writer).steps.size(), 4u) << "nobody said which";
  writer.mark(record::MarkKind::text, R"(summary {"steps":2,"step_ends":[2,4],"versions":{}})");
  const Recording recording = read(writer);
  ASSERT_EQ(recording.steps.size(), 2u);
  EXPECT_EQ(recording.steps[1].work.gemms, 2);
  EXPECT_EQ(recording.steps_told, 2);
  EXPECT_EQ(recording.launches, 4);
}

/// What a killed process wrote down last, beside its record.
TEST(Recording, TakesTheSummaryBesideIt) {
  RecordWriter writer;
  writer.phase("forward").gemm(64, 32, 16).write(record::Kind::mark, boundary(1));
  const TemporaryFile record(writer.bytes()),
      summary(R"({"steps":1,"step_ends":[1],"model":"Net","parameters":7,"needs_peers":true,"versions":{}})");
  const Recording recording = read_recording(record.path(), summary.path());
  EXPECT_EQ(recording.model, "Net");
  EXPECT_EQ(recording.parameters, 7);
  EXPECT_TRUE(recording.needs_peers);
  EXPECT_EQ(recording.steps.size(), 1u);
}

/// A product that is captured runs when its graph is launched, as often as that is.
TEST(Recording, CapturedWorkCountsWhereItsGraphIsLaunched) {
  RecordWriter writer;
  record::GraphBegin begin{};
  begin.graph = 3;
  record::Gemm product{};
  product.header.flags = record::kCaptured;
  product.m = product.n = product.k = 16;
  product.batch = 1;
  record::GraphEnd end{};
  end.graph = 3;
  record::GraphLaunch launch{};
  launch.graph = 3;
  writer.phase("forward").write(record::Kind::graph_begin, begin).write(record::Kind::gemm, product).write(record::Kind::graph_end, end);
  writer.write(record::Kind::graph_launch, launch).write(record::Kind::graph_launch, launch).step_end();
  const Recording recording = read(writer);
  ASSERT_EQ(recording.steps.size(), 1u);
  EXPECT_EQ(recording.steps[0].work.gemms, 2);
  EXPECT_EQ(recording.launches, 2);
}

/// Stream 7 waits for what stream 0 was issued when the event was recorded, not for the product issued behind it.
TEST(Recording, WaitsReachBackToTheirEvent) {
  RecordWriter writer;
  writer.phase("forward").gemm(512, 512, 512);
  record::EventRecord recorded{};
  recorded.event = 5;
  writer.write(record::Kind::event_record, recorded).gemm(8192, 8192, 8192);
  record::StreamWait wait{};
  wait.stream = 7;
  wait.event = 5;
  writer.write(record::Kind::stream_wait, wait).gemm(64, 64, 64, 7).step_end();
  const Recording recording = read(writer);
  const auto waits = std::find_if(recording.program.step.begin(), recording.program.step.end(),
                                  [](const Instruction& each) { return each.kind == InstructionKind::wait_event; });
  ASSERT_NE(waits, recording.program.step.end());
  const auto record = std::find_if(recording.program.step.begin(), waits,
                                   [](const Instruction& each) { return each.kind == InstructionKind::record_event; });
  ASSERT_NE(record, waits);
  EXPECT_EQ(waits->id, record->id);
  const Cluster cluster = parse_cluster("1xh100-sxm");
  const Timeline timeline = play_time(recording.program, pricing_of(recording, cluster));
  const auto end_of = [&](StreamId stream) {
    for (const Event& event : timeline.events)
      if (event.stream == stream) return event.end;
    return Seconds();
  };
  EXPECT_LT(end_of(waits->stream), timeline.step / 2.0);
}

/// The host waits for stream 0 before it launches on stream 7: the small product begins when the large one has ended. It waits for an event
/// that was recorded before the large one: it begins before that.
TEST(Recording, TheHostWaitsForStreamsAndEvents) {
  const Cluster cluster = parse_cluster("1xh100-sxm");
  const auto begin_of_second = [&](const record::Synchronize& waits) {
    RecordWriter writer;
    writer.phase("forward").gemm(512, 512, 512);
    record::EventRecord recorded{};
    recorded.event = 5;
    writer.write(record::Kind::event_record, recorded).gemm(8192, 8192, 8192);
    writer.write(record::Kind::synchronize, waits).gemm(64, 64, 64, 7).step_end();
    const Recording recording = read(writer);
    const Timeline timeline = play_time(recording.program, pricing_of(recording, cluster));
    Seconds large, small;
    for (const Event& event : timeline.events) {
      const Product* product = recording.program.kernels[recording.program.step[event.instruction].id].product();
      if (product->m == 8192) large = event.end;
      if (product->m == 64) small = event.start;
    }
    return small / large;
  };
  record::Synchronize waits{};
  waits.waits = record::Waits::for_stream;
  EXPECT_GE(begin_of_second(waits), 1.0);
  waits.waits = record::Waits::for_device;
  EXPECT_GE(begin_of_second(waits), 1.0);
  waits.waits = record::Waits::for_event;
  waits.target = 5;
  EXPECT_LT(begin_of_second(waits), 0.5);
}

/// AdamW over 400 MB on the host, operator by operator, and a copy of 8 MB: the bytes that estimate counts. What an optimizer moves that
/// has no name here is not known: the report says so.
TEST(Recording, OptimizersOnTheHostMoveItsMemory) {
  RecordWriter writer;
  writer.phase("forward").gemm(512, 512, 512).phase("optimizer");
  constexpr std::int64_t kParameters = 400'000'000, kCopied = 8'000'000;
  writer.mark(record::MarkKind::text, "host step adamw for-loop", kParameters).mark(record::MarkKind::text, "host traffic", kCopied);
  writer.mark(record::MarkKind::text, "host step nobodys for-loop", kParameters).step_end();
  const Recording recording = read(writer);
  std::int64_t bytes = 0;
  for (const Instruction& each : recording.program.step)
    if (each.kind == InstructionKind::host && static_cast<HostWork>(each.id) == HostWork::memory_traffic) bytes += each.bytes;
  EXPECT_EQ(bytes, kParameters / 4 * program::host_step_traffic(OptimizerKind::adamw, OptimizerImpl::for_loop) + kCopied);
  EXPECT_EQ(recording.left_out, std::vector<std::string>{"the optimizer on the host"});
  const Cluster cluster = parse_cluster("1xh100-sxm");
  const double took = static_cast<double>(bytes) / cluster.node.host_memory_bandwidth.value.value;
  constexpr double kProduct = 1e-5;  // at most, beside which the host begins
  EXPECT_NEAR(play_time(recording.program, pricing_of(recording, cluster)).host_optimizer.value, took * cluster.gpus_per_node, kProduct);
}

/// An all-gather names a rank's share; the program has the whole buffer. Two ranks of a world of four, four apart: no tensor group.
TEST(Recording, CollectivesHaveTheirGroup) {
  RecordWriter writer;
  writer.mark(record::MarkKind::text, "communicator 0 4");
  record::Communicator made{};
  made.id = 3;
  made.size = 2;
  made.action = record::CommunicatorAction::init;
  writer.write(record::Kind::communicator, made).phase("forward");
  record::CollectiveCall call{};
  call.communicator = 3;
  call.op = record::Collective::all_gather;
  call.type = record::Type::bf16;
  call.count = 100;
  call.bytes = 200;
  writer.write(record::Kind::collective, call).step_end();
  const Recording recording = read(writer);
  ASSERT_EQ(recording.groups.size(), 1u);
  EXPECT_EQ(recording.groups[0].ranks, (std::vector<std::int64_t>{0, 4}));
  ASSERT_EQ(recording.program.collectives.size(), 1u);
  EXPECT_EQ(recording.program.collectives[0].bytes, 400);
  ASSERT_EQ(recording.steps[0].collectives.size(), 1u);
  EXPECT_EQ(recording.steps[0].collectives[0].bytes_argument, 200);
}

/// fp32 with tf32's rounding, a row-major linear with its bias: y[96, 50257] = x[96, 768] · W[50257, 768]ᵀ + b. The distances between
/// columns are 768, 768 and 50,257 elements of four bytes: 4 is the largest power of two that divides them.
TEST(Recording, ProductsKeepWhatTheirCallSaid) {
  RecordWriter writer;
  record::Gemm call{};
  call.m = 50257, call.n = 96, call.k = 768, call.batch = 1;
  call.a = call.b = call.c = call.d = record::Type::f32;
  call.transpose_a = 1;
  call.compute = record::Compute::tf32;
  call.epilogue = 4;
  writer.phase("forward").write(record::Kind::gemm, call).step_end();
  const Recording recording = read(writer);
  Product product;
  product.m = 50257, product.n = 96, product.k = 768;
  product.transpose_a = true;
  product.a = product.b = product.result = DType::fp32;
  product.arithmetic = Arithmetic::tf32;
  product.epilogue = Epilogue::bias;
  product.alignment = 4;
  ASSERT_EQ(recording.program.kernels.size(), 1u);
  EXPECT_EQ(recording.program.kernels[0], Kernel{product});
}

/// Row-major D[64, 32] = A[64, 16] · B[16, 32] is the column-major Dᵀ[32, 64] = Bᵀ[32, 16] · Aᵀ[16, 64] of the same memory.
TEST(Recording, ProductsInRowsAreProductsInColumnsTransposed) {
  RecordWriter writer;
  record::Gemm call{};
  call.m = 64, call.n = 32, call.k = 16, call.batch = 1;
  call.a = call.b = call.d = record::Type::bf16;
  call.row_major = 1;
  call.transpose_b = 1;
  writer.phase("forward").write(record::Kind::gemm, call).step_end();
  const Recording recording = read(writer);
  const Product* product = recording.program.kernels.at(0).product();
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product->m, 32);
  EXPECT_EQ(product->n, 64);
  EXPECT_TRUE(product->transpose_a);
  EXPECT_FALSE(product->transpose_b);
}

/// 8 images of 3 × 64 × 64, 64 filters of 3 × 3 × 3, a result of 8 × 64 × 64 × 64: 2 · 8·64·64·64 · 27 FLOPs.
TEST(Recording, ConvolutionsOfALibraryHaveTheirFlops) {
  RecordWriter writer;
  const std::int64_t numbers[] = {4, 8, 3, 64, 64, 64, 3, 3, 3, 8, 64, 64, 64};
  record::LibraryCall call{};
  call.name = writer.name("cudnn.convolution_forward rank, image, filter, result dimensions");
  call.count = 13;
  call.type = record::Type::bf16;
  writer.phase("forward")
      .write(record::Kind::library_call, call, std::string_view(reinterpret_cast<const char*>(numbers), sizeof numbers))
      .step_end();
  const Recording recording = read(writer);
  ASSERT_EQ(recording.program.kernels.size(), 1u);
  EXPECT_EQ(recording.program.kernels[0].kind(), KernelKind::convolution);
  EXPECT_EQ(recording.program.kernels[0].flops(), 2.0 * 8 * 64 * 64 * 64 * 27);
  EXPECT_EQ(recording.kernel_names[0], "cudnn.convolution_forward");
}

/// 256 images of 64 × 112 × 112 in fp32, 822,083,584 bytes: forward they are read twice and written once, backward beside their gradients.
TEST(Recording, BatchNormalizationMovesItsImages) {
  RecordWriter writer;
  const std::int64_t numbers[] = {256, 64, 112, 112};
  record::LibraryCall call{};
  call.count = 4;
  call.type = record::Type::f32;
  const std::string_view tail(reinterpret_cast<const char*>(numbers), sizeof numbers);
  for (const char* name : {"cudnn.batch_normalization_forward dimensions", "cudnn.batch_normalization_backward dimensions"}) {
    call.name = writer.name(name);
    writer.phase("forward").write(record::Kind::library_call, call, tail);
  }
  const Recording recording = read(writer.step_end());
  ASSERT_EQ(recording.program.kernels.size(), 2u);
  EXPECT_EQ(recording.program.kernels[0].bytes(), 3 * 822'083'584LL);
  EXPECT_EQ(recording.program.kernels[1].bytes(), 5 * 822'083'584LL);
  EXPECT_TRUE(recording.bytes_known[0] && recording.bytes_known[1]);
}

/// A step of a library's attention in bf16, whose passes note the same numbers.
Recording attention_recording(const char* forward, const char* backward, const std::vector<std::int64_t>& numbers) {
  RecordWriter writer;
  record::LibraryCall call{};
  call.count = static_cast<std::uint32_t>(numbers.size());
  call.type = record::Type::bf16;
  const std::string_view tail(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t));
  call.name = writer.name(forward);
  writer.phase("forward").write(record::Kind::library_call, call, tail);
  call.name = writer.name(backward);
  writer.phase("backward").write(record::Kind::library_call, call, tail).step_end();
  return read(writer);
}

std::vector<Attention::Part> attention_parts(const Recording& recording) {
  std::vector<Attention::Part> parts;
  for (const Instruction& instruction : recording.program.step)
    if (instruction.kind == InstructionKind::kernel) parts.push_back(recording.program.kernels[instruction.id].attention()->part);
  return parts;
}

/// flash-attn's backward pass of query heads that share key heads: row sums, gradients and dQ's cast; the sums over heads are PyTorch's own.
TEST(Recording, AttentionOfFlashAttnIsItsKernels) {
  const Recording recording = attention_recording("flash_attn.attention_forward", "flash_attn.attention_backward", {2, 8, 512, 64, 2, 2, 512, 64, 64, 1 + 1, 1});
  using Part = Attention::Part;
  EXPECT_EQ(attention_parts(recording), (std::vector<Part>{Part::forward, Part::delta, Part::backward, Part::convert}));
  const Attention& first = *recording.program.kernels[0].attention();
  EXPECT_EQ(first.library, AttentionLibrary::flash2);
  EXPECT_TRUE(first.causal);
  EXPECT_EQ(first.kv_heads, 2);
  EXPECT_TRUE(recording.program.copies.empty());
}

/// Causal attention of 8 heads that share 2 key heads: forward one kernel; backward the row sums, the gradients, dQ's cast, and the sums of
/// dK and dV over shared heads. Each call sets its kernels' counter first.
TEST(Recording, AttentionOfALibraryIsItsKernels) {
  const Recording recording = attention_recording("cudnn.attention_forward query dimensions, …", "cudnn.attention_backward query dimensions, …",
                                                  {2, 8, 512, 64, 2, 2, 512, 64, 32, 1 + 1, 1 + 128});
  using Part = Attention::Part;
  EXPECT_EQ(attention_parts(recording), (std::vector<Part>{Part::forward, Part::delta, Part::backward, Part::convert, Part::sum_heads, Part::sum_heads}));
  ASSERT_EQ(recording.program.copies.size(), 2u);
  EXPECT_EQ(recording.program.copies[0].bytes, 4);
  const Attention& first = *recording.program.kernels[0].attention();
  EXPECT_EQ(first.library, AttentionLibrary::cudnn);
  EXPECT_TRUE(first.causal);
  EXPECT_FALSE(first.masked || first.dropout);
  EXPECT_EQ(first.kv_heads, 2);
  EXPECT_EQ(first.value_dim, 32);
  EXPECT_EQ(first.window, 128);
}

/// The sixth device of a node: its copies are on the stream of its kernels, not on a stream of the first.
TEST(Recording, CopiesOfAnyDeviceStayOnTheirStream) {
  RecordWriter writer;
  writer.phase("forward").allocate(0x1000, kMiB);
  record::Gemm product{};
  product.header.device = 5;
  product.m = product.n = product.k = 16;
  product.batch = 1;
  product.a = product.b = product.d = record::Type::bf16;
  record::Copy copy{};
  copy.header.device = 5;
  copy.kind = record::CopyKind::host_to_device;
  copy.bytes = 64;
  record::Memset set{};
  set.header.device = 5;
  set.bytes = 64;
  writer.write(record::Kind::gemm, product).write(record::Kind::copy, copy).write(record::Kind::memset, set).step_end();
  const Recording recording = read(writer);
  std::vector<StreamId> streams;
  for (const Instruction& instruction : recording.program.step)
    if (instruction.kind == InstructionKind::kernel || instruction.kind == InstructionKind::copy) streams.push_back(instruction.stream);
  ASSERT_EQ(streams.size(), 3u);
  EXPECT_EQ(streams[1], streams[0]);
  EXPECT_EQ(streams[2], streams[0]);
}

/// 1,024 tokens of width 64 through 8 experts of width 32, an even share of 128 tokens each: 2·1,024·32·64 FLOPs, whichever expert takes
/// them; the kernel before it does not count.
TEST(Recording, GroupedProductsHaveTheShapeThatWasTold) {
  RecordWriter writer;
  writer.phase("forward").allocate(0x1000, kMiB);
  record::Kernel kernel{};
  kernel.grid[0] = kernel.grid[1] = kernel.grid[2] = kernel.block[0] = kernel.block[1] = kernel.block[2] = 1;
  const auto launch = [&](const char* name) {
    kernel.name = writer.name(name);
    writer.write(record::Kind::kernel, kernel);
  };
  writer.mark(record::MarkKind::text, "grouped product 32 128 64 8 2 1 0");
  launch("prepare_grouped_gemm_data");
  launch("_ZN7cutlass13device_kernelIN4gemm6kernel13GemmUniversalINS1_17GroupProblemShapeEEEEvT_");
  launch("_ZN7cutlass13device_kernelIN4gemm6kernel13GemmUniversalINS1_17GroupProblemShapeEEEEvT_");  // nothing was told of this one
  writer.step_end();
  const Recording recording = read(writer);
  EXPECT_EQ(recording.steps[0].work.launches, 3);
  EXPECT_EQ(recording.steps[0].work.gemms, 1);
  EXPECT_EQ(recording.steps[0].work.gemm_flops, 2.0 * 1024 * 32 * 64);
  const Product* product = recording.program.kernels[1].product();
  ASSERT_NE(product, nullptr);
  EXPECT_TRUE(product->grouped);
  EXPECT_TRUE(product->transpose_a);
  EXPECT_EQ(product->batch, 8);
}

/// FlexAttention says before a launch of its kernel what that does: 4 · pairs · heads · batch · head dimension forward, 2.5 times that
/// backward. Half of all pairs of a square is a causal mask; what else is left is as many keys a query. What makes no sense says nothing.
TEST(Recording, FlexAttentionHasTheWorkThatWasTold) {
  RecordWriter writer;
  const auto attend = [&](std::string_view told) {
    writer.mark(record::MarkKind::text, told);
    record::Kernel launch{};
    launch.name = writer.name("triton_tem_fused_flex_attention_0");
    for (int axis = 0; axis < 3; ++axis) launch.grid[axis] = launch.block[axis] = 1;
    writer.write(record::Kind::kernel, launch);
  };
  writer.phase("forward");
  attend("flex attention 0 2 8 2 4096 4096 128 128 2 8388608");
  attend("flex attention 1 2 8 2 4096 4096 128 128 2 3670016");
  attend("flex attention 0 2 8 2 4096 4096 0 128 2 3670016");
  writer.step_end();
  const Recording recording = read(writer);
  ASSERT_EQ(recording.program.kernels.size(), 3u);
  const Attention* const causal = recording.program.kernels[0].attention();
  ASSERT_NE(causal, nullptr);
  EXPECT_EQ(causal->library, AttentionLibrary::flex);
  EXPECT_TRUE(causal->causal);
  EXPECT_EQ(causal->kv_heads, 2);
  EXPECT_EQ(recording.program.kernels[0].flops(), 4.0 * 8388608 * 2 * 8 * 128);
  EXPECT_EQ(recording.program.kernels[1].flops(), 2.5 * 4.0 * 3670016 * 2 * 8 * 128);
  EXPECT_EQ(recording.program.kernels[2].attention(), nullptr);
}

/// A kernel of Inductor's: a whole tensor of 1 MiB, a norm's weight in a flat block of which its 256 elements are the least, and its sizes.
/// 1,048,576 bytes and at most 8 · 256 · 512 of the other. A number as long as a pointer is in no block.
TEST(Recording, KernelsOfTritonMoveTheTensorsThatTheyAreGiven) {
  RecordWriter writer;
  writer.phase("forward").allocate(0x10000000, kMiB).allocate(0x20000000, 64 * kMiB);
  record::Kernel kernel{};
  kernel.grid[0] = kernel.grid[1] = kernel.grid[2] = kernel.block[0] = kernel.block[1] = kernel.block[2] = 1;
  kernel.name = writer.name("triton_per_fused_mean_0");
  std::string tail;
  const auto argument = [&](std::uint16_t parameter, auto value) {
    const record::Argument header{parameter, sizeof value, 0};
    const std::int64_t padded = static_cast<std::int64_t>(value);
    tail.append(reinterpret_cast<const char*>(&header), sizeof header).append(reinterpret_cast<const char*>(&padded), sizeof padded);
  };
  argument(0, std::int64_t{0x10000000});
  argument(1, std::int64_t{0x20000400});
  argument(2, std::int32_t{512});
  argument(3, std::int32_t{256});
  argument(4, std::int64_t{-1});
  writer.write(record::Kind::kernel, kernel, tail).step_end();
  const Recording recording = read(writer);
  ASSERT_EQ(recording.program.kernels.size(), 1u);
  EXPECT_TRUE(recording.bytes_known[0]);
  EXPECT_EQ(recording.program.kernels[0].kind(), KernelKind::reduction);
  EXPECT_EQ(recording.program.kernels[0].bytes(), 1048576 + 8 * 256 * 512);
}

TEST(Recording, RefusesCollectivesOfNoCommunicator) {
  RecordWriter writer;
  writer.phase("forward").write(record::Kind::collective, record::CollectiveCall{});
  EXPECT_THROW(read(writer), Error);
}

TEST(Rehearsal, WhatRanOutOfMemoryDoesNotFit) {
  RecordWriter writer = training(1);
  writer.mark(
      record::MarkKind::text,
      R"(summary {"steps":1,"ended":"the program ended","error":{"type":"OutOfMemoryError","message":"m","stack":["train.py:7 main"]},)"
      R"("out_of_memory":{"requested_bytes":1024,"allocated_bytes":10,"reserved_bytes":20,"stack":["train.py:7 main"]},"versions":{}})");
  const Rehearsal rehearsal = rehearsal_of({read(writer)}, parse_cluster("1xh100-sxm"));
  EXPECT_EQ(rehearsal.report.verdict, Verdict::does_not_fit);
  EXPECT_TRUE(rehearsal.report.worst_rank().memory.out_of_memory);
  ASSERT_TRUE(rehearsal.recordings[0].out_of_memory);
  EXPECT_EQ(rehearsal.recordings[0].out_of_memory->stack.back(), "train.py:7 main");
}

TEST(Rehearsal, RanksWithOneProgramAreCounted) {
  const Rehearsal rehearsal = rehearsal_of({read(training(3)), read(training(3))}, parse_cluster("2xh100-sxm"));
  ASSERT_EQ(rehearsal.report.ranks.size(), 1u);
  EXPECT_EQ(rehearsal.report.ranks[0].count, 2);
}

/// A stage of a pipeline of two: in each step the first computes two micro-batches, of half a TFLOP each, and sends them, the second
/// receives each and computes on it. `ahead`: it asks for its first before the pass in which a step is seen to have ended, as PyTorch's
/// schedules do.
RecordWriter stage(int rank, bool ahead) {
  constexpr std::uint32_t kCompute = 0, kTransfers = 1, kEvent = 7;
  RecordWriter writer;
  record::Communicator made{};
  made.id = 1;
  made.size = 2;
  made.rank = rank;
  made.unique_id = 99;
  made.action = record::CommunicatorAction::init;
  writer.write(record::Kind::communicator, made);
  const auto order = [&](std::uint32_t before, std::uint32_t after) {
    record::EventRecord recorded{};
    recorded.stream = before;
    recorded.event = kEvent;
    record::StreamWait waits{};
    waits.stream = after;
    waits.event = kEvent;
    writer.write(record::Kind::event_record, recorded);
    return waits;
  };
  const auto transfer = [&](record::Collective op) {
    record::CollectiveCall call{};
    call.stream = kTransfers;
    call.communicator = 1;
    call.count = call.bytes = 1024;
    call.op = op;
    call.type = record::Type::u8;
    call.peer = 1 - rank;
    writer.write(record::Kind::collective, call);
  };
  const auto send = [&] {
    writer.write(record::Kind::stream_wait, order(kCompute, kTransfers));
    transfer(record::Collective::send);
  };
  record::StreamWait waits{};
  const auto receive = [&] {
    transfer(record::Collective::receive);
    waits = order(kTransfers, kCompute);
  };
  const auto product = [&] { writer.gemm(8192, 8192, 4096); };
  if (rank == 1 && ahead) receive();
  for (int step = 0; step < 3; ++step) {
    writer.phase("forward");
    for (int micro = 0; micro < 2; ++micro) {
      if (rank == 1 && (micro > 0 || !ahead)) receive();
      if (rank == 1) writer.write(record::Kind::stream_wait, waits);
      product();
      if (rank == 0) send();
    }
    writer.phase("optimizer").gemm(16, 16, 16);
    if (rank == 1 && ahead) {
      writer.mark(record::MarkKind::text, "optimizer stepped");
      receive();
      writer.gemm(16, 16, 16);  // of the next batch, before a pass begins
    }
    writer.step_end();
  }
  const std::string summary = "summary {\"versions\":{},\"world\":2,\"rank\":" + std::to_string(rank) + "}";
  return writer.mark(record::MarkKind::text, summary);
}

/// Two stages of two equal micro-batches have a bubble of one: the second stage begins when the first has computed one and sent it. Played
/// alone neither has any. What was asked for ahead is the next step's.
TEST(Rehearsal, StagesThatRanTogetherWaitForEachOther) {
  for (const bool ahead : {false, true}) {
    const Rehearsal together = rehearsal_of({read(stage(0, ahead)), read(stage(1, ahead))}, parse_cluster("8xh100-sxm"));
    const Rehearsal alone = rehearsal_of({read(stage(1, ahead))}, parse_cluster("8xh100-sxm"));
    ASSERT_EQ(together.timelines.size(), ahead ? 2u : 1u) << "where both launch alike, they are counted";
    const Timeline& joint = together.timelines.back();
    const double product = alone.timelines.front().compute.value / 2;
    EXPECT_EQ(alone.timelines.front().bubble.value, 0);
    EXPECT_GT(joint.bubble.value, 0.9 * product) << ahead;
    EXPECT_LT(joint.bubble.value, 1.3 * product) << ahead;
    EXPECT_NEAR(joint.sum().value, joint.step.value, 1e-9) << ahead;
    const auto said = [](const Rehearsal& rehearsal, const char* text) {
      const auto& notes = rehearsal.report.notes;
      return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) { return note.find(text) != std::string::npos; });
    };
    EXPECT_TRUE(said(together, "played together"));
    EXPECT_TRUE(said(alone, "bubble is not in the step (not all ranks were there"));
  }
}

/// A rank whose last step receives less than is sent to it is played alone, and that is said.
TEST(Rehearsal, StagesThatDoNotMatchAreTold) {
  const Rehearsal both =
      rehearsal_of({read(stage(0, false)), read(stage(1, false).phase("forward").step_end())}, parse_cluster("8xh100-sxm"));
  const auto& notes = both.report.notes;
  EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.find("rank 0 sends 2 times to rank 1 in its last step, which receives 0 times") != std::string::npos;
  }));
}

/// Segments of 2 MiB in the last of four steps are growth that is said; in the third of four they are over when the rehearsal ends.
TEST(Rehearsal, SaysThatReservedMemoryStillGrew) {
  const auto grows_in = [](int growing) {
    RecordWriter writer;
    writer.segment(record::SegmentAction::allocate, 20 * kMiB);
    for (int step = 1; step <= 4; ++step) {
      writer.phase("forward").gemm(64, 32, 16);
      if (step == growing) writer.segment(record::SegmentAction::allocate, 2 * kMiB);
      writer.step_end();
    }
    const auto notes = rehearsal_of({read(writer)}, parse_cluster("1xh100-sxm")).report.notes;
    return std::count_if(notes.begin(), notes.end(), [](const std::string& note) {
      return note.find("still grew in step 4, the last that was followed, from 20.0 MiB to 22.0 MiB") != std::string::npos;
    });
  };
  EXPECT_EQ(grows_in(4), 1);
  EXPECT_EQ(grows_in(3), 0);
}

/// The program compared with itself has no difference; with a product more in one, that product is the first difference.
TEST(Comparison, NamesTheFirstProductThatDiffers) {
  const Recording recording = read(training(2));
  const ProgramComparison same = compare_programs(recording.program, recording);
  EXPECT_EQ(same.first_difference, -1);
  EXPECT_TRUE(same.differences.empty());
  StepProgram lowered = recording.program;
  Product product;
  product.m = 7, product.n = 8, product.k = 9;
  lowered.kernels.push_back({product});
  Instruction more{InstructionKind::kernel};
  more.id = static_cast<std::uint32_t>(lowered.kernels.size() - 1);
  lowered.step.push_back(more);
  const ProgramComparison other = compare_programs(lowered, recording);
  EXPECT_EQ(other.first_difference, 2);
  EXPECT_EQ(other.first_recorded, "nothing more");
  ASSERT_EQ(other.differences.size(), 1u);
  EXPECT_EQ(other.differences[0].what, "gemm 7 x 8 x 9 bf16");
}

}  // namespace
}  // namespace plimsoll::rehearse
