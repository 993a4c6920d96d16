/// Published curves of collectives over the library's model: by how much a measured ring or in-switch reduction differs from it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "plimsoll/cost.hpp"

namespace plimsoll::cost {

/// Seconds that the model gives an algorithm of a kind, for a buffer over a group.
using ModelledTime = std::function<Seconds(CollectiveKind, Bytes, const GroupShape&)>;

/// measured / modelled of `algorithm`, by which the modelled time of this collective is multiplied. The curve of exactly this group is
/// taken, or the curve of another group inside a node at the size where a rank sends as many bytes: a ring's steps are the same whatever
/// the kind. 1 where no curve of that algorithm is published.
double measured_over_modelled(const std::string& algorithm, CollectiveKind kind, Bytes buffer, const GroupShape& group,
                              const CollectiveLibrary& library, const ModelledTime& modelled);

/// The time on the measured curve of that kind, on one node; nothing where the file has none of the kind. A group of another size than was
/// measured takes its modelled time, times measured / modelled of the nearest one where a rank sends as many bytes.
std::optional<Seconds> measured_time(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library,
                                     const ModelledTime& modelled);

}  // namespace plimsoll::cost
