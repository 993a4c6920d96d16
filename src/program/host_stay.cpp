#include "program/host_stay.hpp"

#include <utility>

namespace plimsoll::program {
namespace {

std::int64_t power_of_two(std::int64_t bytes) {
  std::int64_t power = 1;
  while (power < bytes) power *= 2;
  return power;
}

}  // namespace

std::shared_ptr<void> HostStay::hold(std::int64_t bytes) {
  const std::int64_t block = pinned_ ? power_of_two(bytes) : bytes;
  *now_ += block;
  if (*now_ > most_) (pinned_ ? tape_.program().host_pinned : tape_.program().host_pageable) += Bytes(*now_ - std::exchange(most_, *now_));
  return {nullptr, [now = now_, block](void*) { *now -= block; }};
}

}  // namespace plimsoll::program
