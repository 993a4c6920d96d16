// A memory snapshot that PyTorch's viewer opens (pytorch.org/memory_viz, torch/cuda/_memory_viz.py).
#include <map>
#include <utility>

#include "plimsoll/report.hpp"
#include "report/pickle.hpp"

namespace plimsoll {
namespace {

using report::PickleWriter;

const char* action_of(AllocatorEvent::Kind kind) {
  switch (kind) {
    case AllocatorEvent::Kind::alloc:
      return "alloc";
    case AllocatorEvent::Kind::free:
      return "free_requested";
    case AllocatorEvent::Kind::segment_alloc:
      return "segment_alloc";
    case AllocatorEvent::Kind::segment_free:
      return "segment_free";
    case AllocatorEvent::Kind::segment_map:
      return "segment_map";
    case AllocatorEvent::Kind::segment_unmap:
      return "segment_unmap";
    case AllocatorEvent::Kind::out_of_memory:
      return "oom";
  }
  return "";
}

/// Writes the dictionary that torch.cuda.memory._snapshot() returns (torch/cuda/_memory_viz.py reads it).
class SnapshotWriter {
 public:
  SnapshotWriter(const AllocatorHistory& history, const std::vector<std::string>& labels) : history_(history), labels_(labels) {}

  std::string write() {
    out_.dictionary([&] {
      out_.text("segments");
      out_.list([&] {
        for (const AllocatorSegment& segment : history_.segments) write_segment(segment);
      });
      out_.text("device_traces");
      out_.list([&] { write_trace(); });
      out_.text("allocator_settings");
      out_.dictionary([] {});
      out_.text("external_annotations");
      out_.list([] {});
    });
    return out_.finish();
  }

 private:
  void write_trace() {
    out_.list([&] {
      for (const AllocatorEvent& event : history_.events) {
        write_event(event, action_of(event.kind));
        if (event.kind == AllocatorEvent::Kind::free) write_event(event, "free_completed");
        ++time_;
      }
    });
  }

  void write_event(const AllocatorEvent& event, const char* action) {
    out_.dictionary([&] {
      out_.member("action", action);
      out_.member(event.kind == AllocatorEvent::Kind::out_of_memory ? "device_free" : "addr", static_cast<std::int64_t>(event.address));
      out_.member("size", event.bytes.count);
      out_.member("stream", std::int64_t{event.stream});
      out_.member("time_us", time_);
      if (of_tensor(event.kind))
        frames(event.category, event.label);
      else
        empty_frames();
    });
  }

  static bool of_tensor(AllocatorEvent::Kind kind) {
    return kind == AllocatorEvent::Kind::alloc || kind == AllocatorEvent::Kind::free || kind == AllocatorEvent::Kind::out_of_memory;
  }

  void write_segment(const AllocatorSegment& segment) {
    Bytes active, requested;
    for (const auto& block : segment.blocks) {
      if (block.in_use) active += block.bytes;
      requested += block.requested;
    }
    out_.dictionary([&] {
      out_.member("device", std::int64_t{0});
      out_.member("address", static_cast<std::int64_t>(segment.address));
      out_.member("total_size", segment.bytes.count);
      out_.member("allocated_size", active.count);
      out_.member("active_size", active.count);
      out_.member("requested_size", requested.count);
      out_.member("stream", std::int64_t{segment.stream});
      out_.member("segment_type", segment.small ? "small" : "large");
      out_.text("segment_pool_id");
      out_.integer(0);
      out_.integer(0);
      out_.pair_of_last_two();
      out_.member("is_expandable", segment.expandable);
      empty_frames();
      out_.text("blocks");
      out_.list([&] {
        for (const auto& block : segment.blocks) write_block(block);
      });
    });
  }

  void write_block(const AllocatorSegment::Block& block) {
    out_.dictionary([&] {
      out_.member("address", static_cast<std::int64_t>(block.address));
      out_.member("size", block.bytes.count);
      out_.member("requested_size", block.requested.count);
      out_.member("state", block.in_use ? "active_allocated" : "inactive");
      if (block.in_use)
        frames(block.category, block.label);
      else
        empty_frames();
    });
  }

  void empty_frames() {
    out_.text("frames");
    out_.list([] {});
  }

  /// The stack of an allocation: who made it, and what for. One list per label and category, shared by all that have them.
  void frames(Category category, std::uint32_t label) {
    out_.text("frames");
    const auto [known, is_new] = frames_.try_emplace({category, label}, 0);
    if (!is_new) return out_.recall(known->second);
    out_.list([&] {
      frame(label < labels_.size() ? labels_[label] : "");
      frame(std::string(name_of(category)));
    });
    known->second = out_.memoize();
  }

  void frame(const std::string& name) {
    out_.dictionary([&] {
      out_.member("filename", "plimsoll");
      out_.member("line", std::int64_t{0});
      out_.member("name", name);
    });
  }

  const AllocatorHistory& history_;
  const std::vector<std::string>& labels_;
  PickleWriter out_;
  std::map<std::pair<Category, std::uint32_t>, std::uint32_t> frames_;
  std::int64_t time_ = 0;  // the number of the event: the program has no clock
};

}  // namespace

std::string to_memory_viz(const AllocatorHistory& history, const std::vector<std::string>& labels) {
  return SnapshotWriter(history, labels).write();
}

}  // namespace plimsoll
