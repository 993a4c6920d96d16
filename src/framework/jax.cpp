// JAX frameworks: known by name, refused.
#include "framework/catalogue.hpp"

namespace plimsoll::framework {
namespace {

Entry refused(const char* name, const char* title) {
  FrameworkProfile p;
  p.name = name;
  p.title = title;
  p.refused = "XLA plans its buffers and fuses its kernels itself: neither is modelled";
  return {p, nullptr, nullptr, nullptr};
}

}  // namespace

Entry maxtext() { return refused("jax-maxtext", "MaxText"); }
Entry paxml() { return refused("jax-paxml", "Paxml"); }

}  // namespace plimsoll::framework
