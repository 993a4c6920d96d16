// What transformers' own code does by mechanisms of Python that the evaluator does not have, or by asking the machine it runs on.
//
// Most of transformers is read as code: configurations, layers, decorators, attention, losses. What is put over it (Interpreter::put_over)
// is in our own words, and calls what the tape has.
#pragma once

#include "code/interpreter.hpp"

namespace plimsoll::code {

/// What the texts that stand for such mechanisms call of the tape: masks, attention, ties, where the loss begins.
void define_mechanisms(Interpreter& interpreter);

/// Makes transformers' names known to an interpreter that reads its package.
void define_transformers(Interpreter& interpreter);

}  // namespace plimsoll::code
