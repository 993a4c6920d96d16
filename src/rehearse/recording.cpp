#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "plimsoll/error.hpp"
#include "plimsoll/rehearse.hpp"
#include "rehearse/program_builder.hpp"
#include "rehearse/record_file.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

using rehearse::EventView;
using rehearse::RecordFile;

constexpr std::int64_t kMost = std::int64_t{1} << 62;

/// The summary that the program's helpers write when it ends: the last text mark that starts so.
std::string summary_text(const RecordFile& file) {
  constexpr std::string_view kSummary = "summary ";
  std::string text;
  for (const EventView& event : file.events()) {
    if (event.kind() != rehearse::record::Kind::mark) continue;
    const auto mark = event.as<rehearse::record::Mark>();
    if (mark.kind != rehearse::record::MarkKind::text) continue;
    const std::string& said = file.name(mark.text);
    if (said.compare(0, kSummary.size(), kSummary) == 0) text = said.substr(kSummary.size());
  }
  return text;
}

std::vector<RecordedRemark> remarks(const JsonValue& root, const char* key) {
  std::vector<RecordedRemark> all;
  if (const auto list = root.find(key))
    for (const JsonValue& each : list->elements()) all.push_back({each["what"].text(), each["times"].integer(0, kMost)});
  return all;
}

std::vector<std::string> lines(const JsonValue& list) {
  std::vector<std::string> all;
  for (const JsonValue& each : list.elements()) all.push_back(each.text());
  return all;
}

Bytes bytes_of(const JsonValue& object, const char* key) {
  const auto found = object.find(key);
  return Bytes(found ? found->integer(0, kMost) : 0);
}

int device_of(const JsonValue& object) {
  constexpr std::int64_t kMostDevices = 255;
  const auto found = object.find("device");
  return found ? static_cast<int>(found->integer(0, kMostDevices)) : 0;
}

void read_end(const JsonValue& root, Recording& recording) {
  if (const auto ended = root.find("ended"); ended && ended->is_text()) recording.ended_because = ended->text();
  if (const auto error = root.find("error"); error && error->is_object()) {
    recording.error = (*error)["type"].text() + ": " + (*error)["message"].text();
    recording.error_stack = lines((*error)["stack"]);
  }
  if (const auto failed = root.find("out_of_memory"); failed && failed->is_object())
    recording.out_of_memory = RecordedOutOfMemory{device_of(*failed), bytes_of(*failed, "requested_bytes"), bytes_of(*failed, "allocated_bytes"),
                                                  bytes_of(*failed, "reserved_bytes"), lines((*failed)["stack"])};
}

/// A program that ran out of memory and went on (with a smaller batch, say): that is no failure, but worth a note.
void forgive_what_was_caught(const JsonValue& root, Recording& recording) {
  const auto steps = root.find("steps");
  if (!recording.out_of_memory || !recording.error.empty() || !steps || steps->integer(0, kMost) == 0) return;
  recording.notes.push_back(
      {fmt::format("an allocation of {} failed, and the program went on: {}", to_string(recording.out_of_memory->requested),
                   recording.out_of_memory->stack.empty() ? std::string() : recording.out_of_memory->stack.back()),
       1});
  recording.out_of_memory.reset();
}

void read_summary(const JsonValue& root, Recording& recording) {
  recording.replaced = remarks(root, "replaced");
  recording.read = remarks(root, "read");
  recording.notes = remarks(root, "notes");
  if (const auto versions = root.find("versions"))
    for (const std::string& key : versions->keys()) recording.versions.emplace_back(key, (*versions)[key].text());
  if (const auto steps = root.find("steps")) recording.steps_told = steps->integer(0, kMost);
  if (const auto ends = root.find("step_ends")) {
    recording.step_ends.emplace();
    for (const JsonValue& each : ends->elements()) recording.step_ends->push_back(each.integer(0, kMost));
  }
  if (const auto rank = root.find("rank")) recording.rank = rank->integer(0, kMost);
  if (const auto world = root.find("world")) recording.world = world->integer(1, kMost);
  if (const auto model = root.find("model")) recording.model = model->text();
  if (const auto parameters = root.find("parameters")) recording.parameters = parameters->integer(0, kMost);
  recording.needs_peers = root.find("needs_peers").has_value();
  if (const auto tokens = root.find("tokens")) recording.tokens = tokens->integer(0, kMost);
  read_end(root, recording);
  forgive_what_was_caught(root, recording);
}

/// The record's own sum of blocks must be what PyTorch's statistics say; where it is not, the reader should know.
void check_against_statistics(const JsonValue& root, Recording& recording) {
  auto memory = root.find("memory");
  if (memory && recording.device) {  // of the device that was current
    const auto others = memory->find("devices");
    memory = others ? others->find(std::to_string(*recording.device)) : std::nullopt;
  }
  if (!memory || !recording.has_blocks) return;
  Bytes peak = recording.init_peak_allocated;
  for (const RecordedStep& step : recording.steps) peak = std::max(peak, step.peak_allocated);
  const Bytes said = bytes_of(*memory, "peak_allocated_bytes");
  if (!recording.out_of_memory && said != peak && said > Bytes(0))
    recording.notes.push_back(
        {fmt::format("PyTorch's own statistics say a peak of {} B allocated, its recorded blocks {} B", said.count, peak.count), 1});
}

/// Elements that a thread of a vectorised elementwise kernel handles (ATen/native/cuda/thread_constants.h): 4 before PyTorch 2.7, 8 since.
int elements_per_thread(const Recording& recording) {
  for (const auto& [name, version] : recording.versions) {
    if (name != "torch" || version.size() < 3 || version.compare(0, 2, "2.") != 0) continue;
    return std::atoi(version.c_str() + 2) < 7 ? 4 : 8;
  }
  return 8;
}

/// What the program's helpers said, in the record or else in a file beside it.
std::optional<JsonDocument> document_of(const RecordFile& file, const std::string& path, const std::string& summary_path) {
  const std::string summary = summary_text(file);
  if (!summary.empty()) return JsonDocument::parse(summary, path + " (summary)");
  if (!summary_path.empty()) return JsonDocument::read_file(summary_path);
  return {};
}

Recording read_one(const RecordFile& file, const std::string& path, const std::optional<JsonDocument>& document, std::optional<int> device) {
  Recording recording;
  recording.path = path;
  recording.device = device;
  if (document) read_summary(document->root(), recording);
  rehearse::ProgramBuilder(file, recording, elements_per_thread(recording)).build();
  if (recording.out_of_memory) {
    const int failed = recording.out_of_memory->device;
    auto& devices = recording.devices;
    if (std::find(devices.begin(), devices.end(), failed) == devices.end()) devices.push_back(failed);
    if (device && *device != failed) recording.out_of_memory.reset();
  }
  std::sort(recording.devices.begin(), recording.devices.end());
  if (document) check_against_statistics(document->root(), recording);
  return recording;
}

}  // namespace

Bytes Recording::peak_allocated() const {
  Bytes peak;
  for (std::size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i) peak = std::max(peak, steps[i].peak_allocated);
  return steps.empty() ? init_peak_allocated : peak;
}

Bytes Recording::peak_reserved() const {
  Bytes peak = peak_reserved_before;
  for (const RecordedStep& step : steps) peak = std::max(peak, step.peak_reserved);
  return peak;
}

Recording read_summary(const std::string& path) {
  Recording recording;
  const JsonDocument document = JsonDocument::read_file(path);
  read_summary(document.root(), recording);
  return recording;
}

Recording read_recording(const std::string& path, const std::string& summary_path) {
  const RecordFile file(path);
  return read_one(file, path, document_of(file, path, summary_path), std::nullopt);
}

std::vector<Recording> read_devices(const std::string& path, const std::string& summary_path) {
  const RecordFile file(path);
  const std::optional<JsonDocument> document = document_of(file, path, summary_path);
  std::vector<Recording> devices{read_one(file, path, document, std::nullopt)};
  if (devices.front().devices.size() < 2) return devices;
  const std::vector<int> numbers = devices.front().devices;
  devices.clear();
  for (const int number : numbers) devices.push_back(read_one(file, path, document, number));
  return devices;
}

}  // namespace plimsoll
