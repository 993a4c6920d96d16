#include "program/modules/transformers/plain_mlp.hpp"

#include <utility>

#include "program/modules/transformers/xielu.hpp"

namespace plimsoll::program {

PlainMlp::PlainMlp(Module& module, Tape& tape, std::string activation, const char* up, const char* down)
    : module_(module),
      tape_(tape),
      xielu_(activation == "xielu" ? &module.child("act_fn") : nullptr),
      act_(module, "act", tape, std::move(activation)),
      up_(module.child(up), tape),
      down_(module.child(down), tape) {}

Tensor PlainMlp::operator()(const Tensor& input) const {
  Tensor x = input;
  ModuleCall call(module_, tape_, {&x});
  Tensor hidden = up_(x);
  hidden = xielu_ ? xielu(*xielu_, tape_, hidden) : act_(hidden);
  return call.done(down_(hidden));
}

}  // namespace plimsoll::program
