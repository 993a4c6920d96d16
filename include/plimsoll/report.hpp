/// Writers: what a person reads in ten seconds, and the versioned JSON that programs read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/formula.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/rehearse.hpp"
#include "plimsoll/settled_keys.hpp"
#include "plimsoll/text_style.hpp"

namespace plimsoll {

/// The verdict line, memory by category against capacity, time, FLOPs, assumptions.
std::string to_text(const Report& report, const TextStyle& style = {});

/// One object "plimsoll/estimate/1" (docs/estimate-json.md), with what became of the strategy's keys. Bytes that are no UTF-8 become U+FFFD.
std::string to_json(const Report& report, const std::vector<SettledKey>& settings = {});

/// The instant of the peak, what is alive at it, what would lower it; at most `most` groups per category (0: all).
std::string to_text(const Explanation& explanation, std::size_t most, const TextStyle& style = {});

/// One object "plimsoll/explain/1" (docs/explain.md).
std::string to_json(const Explanation& explanation);

/// {"schema":"plimsoll/error/1","error":{"code","message","where","hint"}}
std::string to_json(const Error& error);

/// The shipped models, one line each: name, type, parameters, active parameters.
std::string model_list();
/// {"schema":"plimsoll/models/1","models":[…]}
std::string model_list_json();

/// {"schema":"plimsoll/hardware/1","accelerators":[…],"clusters":[…]}, or with a name the shipped file of that device or cluster.
/// Throws Error: unknown name.
std::string hardware_json(const std::string& name);

/// The frameworks of the catalogue, one line each; or one with what it takes by default and can do. Throws Error: unknown name.
std::string framework_list();
std::string framework_sheet(const std::string& name);
/// {"schema":"plimsoll/frameworks/1","frameworks":[…]}, or {"schema":"plimsoll/framework/1",…}
std::string framework_json(const std::string& name);

/// One model as a table of layers: operators with parameters, forward FLOPs per token and output shape.
std::string model_sheet(const Model& model);
/// {"schema":"plimsoll/model/1",…}
std::string model_sheet_json(const Model& model);

/// The bytes of a pickle file that PyTorch's memory viewer opens (pytorch.org/memory_viz): what torch.cuda.memory._snapshot() returns.
/// The stack of an allocation is its label (`labels` of the program) and its category; its time is the number of the event.
std::string to_memory_viz(const AllocatorHistory& history, const std::vector<std::string>& labels);

/// The played step of ranks as a trace that Perfetto and chrome://tracing open: for each rank a process with a row per stream, the phases of
/// the step and a counter of allocated and reserved bytes; arrows from sends to their receives.
std::string to_step_trace(const std::vector<RankTimeline>& ranks, const std::string& title);

/// The step of a program, a line for everything that the device or the host does: number of the instruction, stream, what it is with the
/// bytes that it reads and writes, the module and operator that did it, and how often where a stretch is repeated.
std::string to_program_text(const StepProgram& program);

/// The report of a rehearsal: as to_text(Report), with the launches by time (`most` rows) and the communicators.
std::string to_text(const Rehearsal& rehearsal, std::size_t most, const TextStyle& style = {});

/// The played step of one rank (index in `recordings`) as a trace that Perfetto and chrome://tracing open: a row per stream.
std::string to_timeline_trace(const Rehearsal& rehearsal, std::size_t rank);

/// Both programs' totals and what differs, the first matrix product that differs first; at most `most` differences.
std::string to_text(const ProgramComparison& comparison, std::size_t most);

std::string to_text(const AccelerateView& view);
std::string to_text(const DeepSpeedView& view);

}  // namespace plimsoll
