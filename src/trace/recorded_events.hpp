// The events of a trace that matter, whoever recorded it, in a form that many of them fit into: kernels, copies, and the operators that launched them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plimsoll/dtype.hpp"
#include "plimsoll/trace.hpp"

namespace plimsoll::trace {

/// An argument of an operator, where it is a tensor.
struct TensorShape {
  std::optional<DType> type;  ///< none: no tensor, or of a type that is not known
  std::vector<std::int64_t> sizes, strides;

  std::int64_t elements() const;
};

/// An operator with the shapes that it was called with; equal ones are one.
struct Operator {
  std::string name;                    ///< "aten::mm"
  std::vector<TensorShape> inputs;     ///< by argument; those of a list one after the other
  std::vector<std::string> constants;  ///< "Concrete Inputs": by argument, empty for tensors
  bool shaped = false;
};

/// What a collective's call said (record_param_comms).
struct CollectiveCall {
  std::string name, type;  ///< "_allgather_base", "BFloat16"
  std::int64_t in = 0, out = 0, ranks = 0;
  std::vector<std::int64_t> members;
};

struct DeviceEvent {
  enum class Kind : std::uint8_t { kernel, copy, set };
  Kind kind = Kind::kernel;
  std::uint32_t name = 0;        ///< of RecordedEvents::names
  std::uint32_t collective = 0;  ///< 1 + index of RecordedEvents::collectives; 0: none
  std::uint64_t operation = 0;   ///< the operator's "External id"; 0: none
  std::int64_t bytes = 0;        ///< of copies and sets
  double start = 0, seconds = 0;
  std::uint64_t device = 0;      ///< process and device
  std::uint32_t stream = 0;
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
};

/// An interval of the host that the program named.
struct HostMark {
  std::string name;
  double start = 0, end = 0;
};

struct RecordedEvents {
  std::vector<std::string> names;
  std::vector<Operator> operators;
  std::vector<CollectiveCall> collectives;
  std::vector<DeviceEvent> device;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> operator_ids;  ///< External id, index of operators; sorted
  std::vector<HostMark> steps, optimizers;
  TracedDevice accelerator;
  std::int64_t rank = -1, world = 0;
  std::uint64_t events = 0, device_events = 0, operator_events = 0;  ///< seen, kept or not
  double host_start = 0, host_end = 0;                               ///< of operators

  /// The operator that launched an event; null: not recorded.
  const Operator* operator_of(const DeviceEvent& event) const;
};

/// Names that are told again and again, as their index in a list.
class NameIndex {
 public:
  std::uint32_t operator()(const std::string& text, std::vector<std::string>& names) {
    const auto [found, is_new] = index_.try_emplace(text, static_cast<std::uint32_t>(names.size()));
    if (is_new) names.push_back(text);
    return found->second;
  }

 private:
  std::unordered_map<std::string, std::uint32_t> index_;
};

/// At most kMostKernels device events and kMostOperators operators of a trace are kept, the first ones. Each reader throws Error with the place
/// where the file is not what it should be, and where it holds no kernels.
inline constexpr std::size_t kMostKernels = 1'000'000, kMostOperators = 4'000'000;
/// A Chrome trace of torch.profiler.
RecordedEvents read_kineto(const std::string& path);
/// The SQLite export of Nsight Systems: no operators, steps by NVTX ranges.
RecordedEvents read_nsys(const std::string& path);
/// The CSV table of kernels of rocprofv3, and what lies beside it: no operators, steps by ROCTx ranges.
RecordedEvents read_rocprof(const std::string& path);

}  // namespace plimsoll::trace
