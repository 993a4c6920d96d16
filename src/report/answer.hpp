// The first line of every report of a run.
#pragma once

#include <string>

#include "plimsoll/estimate.hpp"
#include "plimsoll/explain.hpp"

namespace plimsoll {

/// "fits", "tight" or "does not fit": what people say.
std::string spoken_verdict(Verdict verdict);

/// "fits: llama-3.1-8b on 8 x mi300x, 149.3 of 192.0 GiB per GPU, 42.7 GiB left; 2.15 s a step, …", in one line.
std::string answer_of(const Report& report);

/// A change as the files of the run would say it; empty: it came from none, or they cannot.
std::string said_in_files(const Change& change);

/// "9,187 tokens/s per GPU", or images.
std::string rate_of(const TimeReport& time);

}  // namespace plimsoll
