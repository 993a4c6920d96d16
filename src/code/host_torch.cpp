#include "code/host_torch.hpp"

#include <limits>

#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

/// Marks for compilers, which nothing compiles here.
constexpr const char* kCompiler = R"py(
def allow_in_graph(function):
    return function


def disable(function=None, **options):
    return function if function is not None else lambda of: of


def is_compiling():
    return False


def is_dynamo_compiling():
    return False


def is_exporting():
    return False
)py";

constexpr const char* kDynamo = R"py(
def is_compiling():
    return False


def mark_static_address(tensor, **options):
    pass


def allow_in_graph(function):
    return function


def disable(function=None, **options):
    return function if function is not None else lambda of: of
)py";

constexpr const char* kJit = R"py(
def script(function):
    return function


unused = interface = script_if_tracing = script


def ignore(drop=False, **options):
    return drop if callable(drop) else script


def is_tracing():
    return False


def is_scripting():
    return False
)py";

constexpr const char* kTorch = R"py(
def compile(function=None, **options):
    from plimsoll import refuse

    refuse("torch.compile in the code itself")


contiguous_format = "contiguous_format"
legacy_contiguous_format = "legacy_contiguous_format"
inf = float("inf")
nan = float("nan")
pi = 3.141592653589793
)py";

struct Range {
  DType type;
  double least, most, smallest_normal, epsilon;
  int bits;
};

// torch.finfo (c10/util: std::numeric_limits of its types)
constexpr Range kRanges[] = {
    {DType::fp32, -3.4028234663852886e38, 3.4028234663852886e38, 1.1754943508222875e-38, 1.1920928955078125e-07, 32},
    {DType::bf16, -3.3895313892515355e38, 3.3895313892515355e38, 1.1754943508222875e-38, 0.0078125, 16},
    {DType::fp16, -65504.0, 65504.0, 6.103515625e-05, 0.0009765625, 16},
    {DType::fp64, -1.7976931348623157e308, 1.7976931348623157e308, 2.2250738585072014e-308, 2.220446049250313e-16, 64}};

Value finfo(Interpreter& i, Bound& a) {
  const DType type = a.has(0) ? i.torch().type_of(a[0]) : DType::fp32;
  for (const Range& range : kRanges) {
    if (range.type != type) continue;
    Held<NamespaceObject> made(new NamespaceObject(i.heap(), "torch.finfo", true));
    made->attributes[i.symbol("min")] = Value::real(range.least);
    made->attributes[i.symbol("max")] = Value::real(range.most);
    made->attributes[i.symbol("tiny")] = made->attributes[i.symbol("smallest_normal")] = Value::real(range.smallest_normal);
    made->attributes[i.symbol("eps")] = Value::real(range.epsilon);
    made->attributes[i.symbol("bits")] = Value::integer(range.bits);
    return Value(made);
  }
  i.raise("TypeError", "torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'torch.finfo'");
}

Value iinfo(Interpreter& i, Bound& a) {
  const DType type = i.torch().type_of(a[0]);
  Held<NamespaceObject> made(new NamespaceObject(i.heap(), "torch.iinfo", true));
  const bool wide = type == DType::int64;
  if (!wide && type != DType::int32) i.unknown("torch.iinfo of such a type");
  made->attributes[i.symbol("min")] = Value::integer(wide ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int32_t>::min());
  made->attributes[i.symbol("max")] = Value::integer(wide ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<std::int32_t>::max());
  return Value(made);
}

program::Tape& accelerator(Interpreter& i) { return i.torch().tape_of(i.text("cuda")); }

Value is_autocast_enabled(Interpreter& i, Bound& a) {
  const bool of_host = a.has(0) && i.words(a[0], "devices") == "cpu";
  return Value::boolean(!of_host && accelerator(i).autocast.enabled);
}

Value autocast_type(Interpreter& i, Bound&) { return i.torch().type_value(accelerator(i).autocast.type); }

/// nn.Buffer: a tensor that a module takes as a buffer when it is given one.
Value buffer(Interpreter& i, Bound& a) {
  Held<TensorObject> made(new TensorObject(i.heap(), i.torch().tensor_of(a[0], "a buffer's data")));
  made->buffer = a[1].is_bound() && !i.truth(a[1]) ? TensorObject::Buffer::not_persistent : TensorObject::Buffer::persistent;
  return Value(made);
}

Value as_it_is(Interpreter&, Bound& a) { return a[0]; }

Value part_of(Interpreter& i, const Value& module, const std::string& path) {
  Value found = module;
  for (std::size_t start = 0; start < path.size();) {
    const std::size_t dot = std::min(path.find('.', start), path.size());
    found = i.attribute(found, i.symbol(std::string_view(path).substr(start, dot - start)));
    start = dot + 1;
  }
  return found;
}

Value part(Interpreter& i, Bound& a) { return part_of(i, a[0], i.words(a[1], "names of modules")); }

constexpr LibraryRow kModuleRows[] = {
    {"cuda", "self, device=", as_it_is},  // the whole is moved when it is built
    {"cpu", "self", as_it_is},
    {"get_submodule", "self, target", part},
    {"get_parameter", "self, target", part},
    {"get_buffer", "self, target", part},
};

}  // namespace

void define_host_torch(Interpreter& i) {
  auto* type = i.library("torch.nn").attributes.at(i.symbol("Module")).as<ClassObject>();
  for (const LibraryRow& row : kModuleRows)
    type->attributes.set(i.symbol(row.name), i.method(std::string("Module.") + row.name, row.signature, row.run));
  for (const auto& [module, text] : {std::pair{"torch.compiler", kCompiler}, std::pair{"torch._dynamo", kDynamo}, std::pair{"torch.jit", kJit},
                                     std::pair{"torch", kTorch}})
    i.put_over(module, text);
  NamespaceObject& torch = i.library("torch");
  torch.attributes[i.symbol("finfo")] = i.native("torch.finfo", "type=", finfo);
  torch.attributes[i.symbol("get_default_dtype")] = i.native(
      "torch.get_default_dtype", "", [](Interpreter& inner, Bound&) { return inner.torch().type_value(inner.torch().default_type); });
  torch.attributes[i.symbol("iinfo")] = i.native("torch.iinfo", "type", iinfo);
  torch.attributes[i.symbol("is_grad_enabled")] =
      i.native("torch.is_grad_enabled", "", [](Interpreter& inner, Bound&) { return Value::boolean(inner.torch().grad_enabled()); });
  torch.attributes[i.symbol("is_autocast_enabled")] = i.native("torch.is_autocast_enabled", "device_type=", is_autocast_enabled);
  torch.attributes[i.symbol("get_autocast_dtype")] = i.native("torch.get_autocast_dtype", "device_type=", autocast_type);
  i.library("torch.nn").attributes[i.symbol("Buffer")] = i.native("torch.nn.Buffer", "data=, persistent=", buffer);
}

}  // namespace plimsoll::code
