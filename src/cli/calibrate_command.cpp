// calibrate: measure this machine, fit its constants, write its hardware file.
#include <cstdio>
#include <optional>

#include "command.hpp"
#include "plimsoll/calibrate.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/plimsoll.hpp"
#include "run_device.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

/// With a model, this part of the time goes to the machine and the rest to the model's own shapes.
constexpr double kMachineShare = 0.5;

std::string read_all(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) fail("cannot be read", path);
  std::string text;
  char buffer[65536];
  for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;) {
    text.append(buffer, got);
    if (text.size() > (std::size_t{64} << 20)) std::fclose(file), fail("is larger than 64 MiB", path);
  }
  std::fclose(file);
  return text;
}

/// A trace is of the device that is calibrated, or it says nothing about it.
void check_device(const DeviceFacts& known, const DeviceFacts& traced, const std::string& path) {
  const bool backend = known.backend.empty() || traced.backend.empty() || known.backend == traced.backend;
  const bool units = known.compute_units == 0 || traced.compute_units == 0 || known.compute_units == traced.compute_units;
  if (!backend || !units)
    fail("the trace is of '" + traced.name + "' with " + std::to_string(traced.compute_units) + " compute units, not of '" + known.name +
             "' with " + std::to_string(known.compute_units),
         path, "give a trace of that device, or --base of the trace's");
}

/// Several traces (of ranks, of runs) add up.
void import_trace(const std::string& path, SampleSet& imported) {
  const Trace trace = read_trace(path);
  SampleSet samples = samples_of(trace);
  check_device(imported.device, samples.device, path);
  if (imported.device.name.empty()) imported.device = samples.device;
  imported.samples.insert(imported.samples.end(), samples.samples.begin(), samples.samples.end());
  std::fprintf(stderr, "plimsoll: %s: %zu kernels and collectives, %zu samples\n", path.c_str(), trace.work.size(), samples.samples.size());
  for (const std::string& note : trace.notes) std::fprintf(stderr, "plimsoll: %s: %s\n", path.c_str(), note.c_str());
}

/// "rccl-tests:out.txt"
void import_into(const std::string& argument, SampleSet& imported) {
  const std::size_t colon = argument.find(':');
  if (colon == std::string::npos) fail("'" + argument + "' names no tool", "--import", "for example rccl-tests:all_reduce_perf.txt");
  const std::string path = argument.substr(colon + 1);
  for (const char* profiler : {"torch-trace", "nsys", "rocprofv3"})
    if (argument.substr(0, colon) == profiler) return import_trace(path, imported);
  for (Sample& sample : import_samples(argument.substr(0, colon), read_all(path), path)) imported.samples.push_back(std::move(sample));
}

FitOptions fit_options(const Arguments& arguments) { return {arguments["--name"], arguments["--base"]}; }

MeasureOptions measure_options(const Arguments& arguments) {
  MeasureOptions options;
  if (arguments.has("--backend")) options.backend = arguments["--backend"];
  options.device = static_cast<int>(arguments.integer_or("--device", 0, 0, 1023));
  if (arguments.has("--seconds")) options.seconds = arguments.number_or("--seconds", 0, 0.1, 86400);
  if (arguments.has("--largest")) options.largest = parse_bytes(arguments["--largest"]);
  options.samples_path = arguments.has("--samples") ? arguments["--samples"] : "plimsoll-samples.jsonl";
  options.progress = draw_progress;
  options.stop = interrupted;
  return options;
}

/// The run whose shapes are measured.
struct Shapes {
  Model model;
  Strategy strategy;
  std::int64_t nodes = 0;  ///< as other programs' files say them; 0: the machine's own devices
  int gpus_per_node = 0;
};

std::optional<Shapes> shapes_of(const Arguments& arguments) {
  if (!is_foreign(arguments)) {
    if (!arguments.has("--model")) return {};
    return Shapes{load_model(arguments["--model"]), strategy_of(arguments, "--device")};
  }
  if (arguments.has("--strategy")) fail("--strategy and --from both give a strategy", "--strategy", "add --from strategy:FILE instead");
  // Of the device only its name is needed to read how many the run has: what it is gets measured.
  const std::string device = arguments.has("--base") ? arguments["--base"] : shipped_accelerators().front();
  ForeignRun run =
      read_foreign(arguments.all("--from"), {arguments["--model"], device, arguments.all("COMMAND"), arguments.all("--release")});
  if (arguments.has("--show-resolved")) print(show_resolved(run) + "\n");
  return Shapes{std::move(run.model), with_strategy_flags(std::move(run.strategy), arguments, "--device"), run.cluster.nodes,
                run.cluster.gpus_per_node};
}

/// Measures, with the shapes of the model where one is named; the samples file has what was measured whatever happens.
SampleSet measured(const Arguments& arguments) {
  const MeasureOptions options = measure_options(arguments);
  const std::optional<Shapes> shapes = shapes_of(arguments);  // before anything is measured: what is wrong with them is said at once
  watch_for_interruption();
  MeasureSession session(options);
  session.measure_machine(shapes ? kMachineShare : 1);
  if (shapes && !session.interrupted()) {
    Cluster cluster = fit_hardware(session.set(), fit_options(arguments)).cluster;
    if (shapes->nodes > 0) {
      cluster.nodes = shapes->nodes;
      cluster.gpus_per_node = cluster.node.gpus = shapes->gpus_per_node;
    }
    session.measure_program(playable_rank(shapes->model, cluster, shapes->strategy, 0), 1 - kMachineShare);
  }
  clear_progress();
  for (const std::string& warning : session.warnings()) std::fprintf(stderr, "plimsoll: %s\n", warning.c_str());
  if (session.interrupted())
    std::fprintf(stderr, "plimsoll: interrupted; %zu samples are kept in %s\n", session.set().samples.size(), options.samples_path.c_str());
  return session.set();
}

int write_calibration(const Arguments& arguments, const SampleSet& set) {
  const Calibration calibration = fit_hardware(set, fit_options(arguments));
  if (calibration.cluster.accelerator.rates.empty()) {
    print(to_text(calibration) +
          "no file is written: nothing here says how fast the device computes (--fit takes the samples of its own calibration, --base a "
          "shipped device)\n");
    return kBadInput;
  }
  const std::string path = arguments.has("-o") ? arguments["-o"] : calibration.cluster.name + ".json";
  write_file(path, to_json(calibration.cluster));
  print(to_text(calibration) + "written: " + path + " (use it with --on " + path + ")\n");
  return kFits;
}

/// Rank 0 writes a file; the others have taken part and are done.
int run_collectives(const Arguments& arguments) {
  const MeasureOptions options = measure_options(arguments);
  watch_for_interruption();
  const CollectiveMeasurement measured = measure_collectives(options);
  if (measured.rank != 0) return kFits;
  clear_progress();
  SampleSet set = arguments.has("--fit") ? load_samples(arguments["--fit"]) : SampleSet{measured.set.device, {}};
  set.samples.insert(set.samples.end(), measured.set.samples.begin(), measured.set.samples.end());
  return write_calibration(arguments, set);
}

/// What the shipped device that is named as base, or else an imported trace, says of the device.
DeviceFacts imported_device(const Arguments& arguments, const DeviceFacts& traced) {
  if (!arguments.has("--base")) return traced;
  const Accelerator base = load_accelerator(arguments["--base"]);
  DeviceFacts facts = traced;
  facts.backend = base.is_amd() ? "hip" : "cuda";
  facts.name = base.title;
  facts.compute_units = base.compute_units;
  check_device(facts, traced, "--import");
  if (!traced.name.empty()) facts.name = traced.name;
  facts.compute_units = traced.compute_units;
  if (traced.name.empty()) facts.devices = 0;  // how many the machine has is not told
  return facts;
}

int run_calibrate(const Arguments& arguments) {
  if (arguments.has("--base")) load_accelerator(arguments["--base"]);  // before anything is measured: a name that none has is said at once
  if (arguments.has("--collectives")) return run_collectives(arguments);
  SampleSet set = arguments.has("--fit") ? load_samples(arguments["--fit"]) : SampleSet{};
  SampleSet imported;
  if (arguments.has("--fit")) imported.device = set.device;
  for (const std::string& argument : arguments.all("--import")) import_into(argument, imported);
  const bool device_known = arguments.has("--base") || !imported.device.name.empty();
  const bool only_imports = !arguments.has("--fit") && arguments.has("--import") && device_known && !arguments.has("--backend");
  if (only_imports)
    set.device = imported_device(arguments, imported.device);
  else if (!arguments.has("--fit"))
    set = measured(arguments);
  set.samples.insert(set.samples.end(), imported.samples.begin(), imported.samples.end());
  return write_calibration(arguments, set);
}

}  // namespace

Command calibrate_command() {
  Command command{
      "calibrate",
      "measure this machine and write its hardware file",
      "  plimsoll calibrate --backend auto -o this-machine.json\n"
      "  plimsoll calibrate --backend cpu --model gpt2 --micro-batch 1 --seq 128\n"
      "  plimsoll calibrate --base mi300x --import rccl-tests:all_reduce_perf.txt --import hipblaslt-bench:gemm.csv -o mine.json\n"
      "  plimsoll calibrate --import torch-trace:trace.json.gz -o this-machine.json\n"
      "  plimsoll calibrate --fit plimsoll-samples.jsonl -o this-machine.json",
      {},
      run_calibrate,
      {}};
  command.options = {{Option::value, "--backend", "auto (the default), hip, cuda or cpu", false, {}},
                     {Option::value, "--device", "which device, from 0", false, {}},
                     {Option::value, "--seconds", "most time to measure; unless told as long as two visits to everything take", false, {}},
                     {Option::value, "--largest", "no buffer is larger, for example 1 GiB", false, {}},
                     {Option::value, "--samples", "where samples are written as they are made, else plimsoll-samples.jsonl", false, {}},
                     {Option::value, "-o", "the hardware file, else the device's name", false, {}},
                     {Option::value, "--name", "name of the device in the file", false, {}},
                     {Option::value, "--base", "shipped device that gives what is not measured, else the one most like it", false, {}},
                     {Option::value, "--fit", "fit these samples instead of measuring", false, {}},
                     {Option::value_list,
                      "--import",
                      "TOOL:FILE, printed by rccl-tests, nccl-tests, hipblaslt-bench, babelstream, transferbench, rocm-bandwidth-test, or "
                      "recorded by torch.profiler (torch-trace), nsys or rocprofv3",
                      false,
                      {}},
                     {Option::flag, "--collectives", "measure collectives among the processes that mpirun started", false, {}},
                     {Option::value, "--model", "measure exactly the shapes that this model's step uses", false, {}},
                     {Option::value, "--strategy", "JSON file of strategy keys for --model; flags come on top", false, {}}};
  for (Option& option : foreign_options()) command.options.push_back(std::move(option));
  for (Option& flag : strategy_flags("--device")) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli
