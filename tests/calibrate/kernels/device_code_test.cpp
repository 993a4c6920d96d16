// What the compiler made of the kernels: the embedded objects' own metadata, their instructions, and the PTX.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "calibrate/kernels/code_objects.hpp"
#include "calibrate/kernels/references.hpp"

namespace plimsoll::calibrate {
namespace {

bool is_amd(const CodeObject& object) { return object.name.substr(0, 3) == "gfx"; }

template <class T>
T at(const CodeObject& object, std::size_t offset) {
  T value;
  EXPECT_LE(offset + sizeof value, object.size);
  std::memcpy(&value, object.data + offset, sizeof value);
  return value;
}

// The AMDGPU metadata of an ELF64 file: the description of the note "AMDGPU" of type 32 (NT_AMDGPU_METADATA), in MessagePack.
nlohmann::json metadata(const CodeObject& object) {
  const auto sections = at<std::uint64_t>(object, 40);
  const auto size = at<std::uint16_t>(object, 58), count = at<std::uint16_t>(object, 60);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t header = sections + i * size;
    if (at<std::uint32_t>(object, header + 4) != 7) continue;  // SHT_NOTE
    const auto offset = at<std::uint64_t>(object, header + 24);
    const auto name = at<std::uint32_t>(object, offset), length = at<std::uint32_t>(object, offset + 4);
    if (at<std::uint32_t>(object, offset + 8) != 32) continue;
    const unsigned char* begin = object.data + offset + 12 + (name + 3) / 4 * 4;
    return nlohmann::json::from_msgpack(begin, begin + length);
  }
  return {};
}

std::map<std::string, nlohmann::json> kernels_of(const CodeObject& object) {
  std::map<std::string, nlohmann::json> result;
  const nlohmann::json all = metadata(object);
  for (const auto& kernel : all.at("amdhsa.kernels")) result[kernel.at(".name")] = kernel;
  return result;
}

class DeviceCode : public testing::Test {
 protected:
  void SetUp() override {
    if (code_objects().empty()) GTEST_SKIP() << "built without device code";
  }
};

TEST_F(DeviceCode, EveryKernelIsThereForEveryTarget) {
  for (const CodeObject& object : code_objects()) {
    std::set<std::string> expected, actual;
    for (const Kernel& kernel : kernel_table()) {
      if (kernel.runs_on(object.target)) expected.emplace(kernel.name);
    }
    if (is_amd(object)) {
      for (const auto& [name, kernel] : kernels_of(object)) actual.insert(name);
    } else {
      std::istringstream text(reinterpret_cast<const char*>(object.data));
      const std::string entry = ".visible .entry ";
      for (std::string line; std::getline(text, line);) {
        if (line.compare(0, entry.size(), entry) == 0) actual.insert(line.substr(entry.size(), line.find('(') - entry.size()));
      }
    }
    EXPECT_EQ(actual, expected) << object.name;
  }
}

// No register is spilled and no array lies in scratch memory; shared memory stays within a compute unit's 64 KiB; two blocks of 4 waves
// find registers (512 of each lane and SIMD); arguments lie as the table packs them.
TEST_F(DeviceCode, AmdKernelsKeepTheirRegistersAndArguments) {
  for (const CodeObject& object : code_objects()) {
    if (!is_amd(object)) continue;
    for (const auto& [name, kernel] : kernels_of(object)) {
      const std::string where = std::string(object.name) + " " + name;
      EXPECT_EQ(kernel.at(".private_segment_fixed_size"), 0) << where;
      EXPECT_EQ(kernel.at(".vgpr_spill_count"), 0) << where;
      EXPECT_EQ(kernel.at(".sgpr_spill_count"), 0) << where;
      EXPECT_EQ(kernel.at(".wavefront_size"), 64) << where;
      EXPECT_EQ(kernel.at(".max_flat_workgroup_size"), 256) << where;
      EXPECT_LE(kernel.at(".group_segment_fixed_size"), 65536) << where;
      EXPECT_LE(kernel.at(".vgpr_count"), 256) << where;
      const Kernel& row = kernel_named(name);
      std::vector<std::string> expected(row.buffers.size(), "global_buffer 8"), actual;
      for (const Scalar& scalar : row.scalars) expected.push_back(scalar.type == ScalarType::u64 ? "by_value 8" : "by_value 4");
      for (const auto& argument : kernel.value(".args", nlohmann::json::array())) {
        const std::string kind = argument.at(".value_kind");
        if (kind.compare(0, 7, "hidden_") != 0) actual.push_back(kind + " " + std::to_string(argument.at(".size").get<int>()));
      }
      EXPECT_EQ(actual, expected) << where;
    }
  }
}

#if defined(PLIMSOLL_OBJDUMP)
using Listing = std::map<std::string, std::vector<std::string>>;  // kernel → mnemonics

Listing disassemble(const CodeObject& object) {
  const std::string file = testing::TempDir() + std::to_string(getpid()) + "plimsoll_" + std::string(object.name) + ".hsaco";
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(object.data), static_cast<std::streamsize>(object.size));
  const std::string command = std::string(PLIMSOLL_OBJDUMP) + " -d --no-show-raw-insn " + file;
  Listing listing;
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string kernel;
  std::array<char, 512> line{};
  while (pipe && std::fgets(line.data(), line.size(), pipe)) {
    const std::string text = line.data();
    const auto open = text.find('<'), close = text.find(">:");
    if (close != std::string::npos && open < close) {
      kernel = text.substr(open + 1, close - open - 1);
    } else if (text[0] == '\t') {
      listing[kernel].push_back(text.substr(1, text.find_first_of(" \n", 1) - 1));
    }
  }
  EXPECT_EQ(pipe ? pclose(pipe) : -1, 0);
  std::remove(file.c_str());
  return listing;
}

std::ptrdiff_t count_of(const std::vector<std::string>& mnemonics, const std::string& name) {
  return std::count(mnemonics.begin(), mnemonics.end(), name);
}

// The matrix instruction of each type, by the assembler's names (LLVM, AMDGPU instruction syntax of gfx90a and gfx940).
struct Expected {
  const char *kernel, *gfx90a, *gfx942, *gfx950;
};
constexpr Expected kMatrixInstructions[] = {
    {"bf16", "v_mfma_f32_16x16x16bf16_1k", "v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x32_bf16"},
    {"fp16", "v_mfma_f32_16x16x16f16", "v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x32_f16"},
    {"fp8", "", "v_mfma_f32_16x16x32_fp8_fp8", "v_mfma_scale_f32_16x16x128_f8f6f4"},
    {"fp32", "v_mfma_f32_16x16x4f32", "v_mfma_f32_16x16x4_f32", "v_mfma_f32_16x16x4_f32"},
    {"fp64", "v_mfma_f64_16x16x4f64", "v_mfma_f64_16x16x4_f64", "v_mfma_f64_16x16x4_f64"},
    {"bf16_32x32", "v_mfma_f32_32x32x8bf16_1k", "v_mfma_f32_32x32x8_bf16", "v_mfma_f32_32x32x16_bf16"},
    {"fp16_32x32", "v_mfma_f32_32x32x8f16", "v_mfma_f32_32x32x8_f16", "v_mfma_f32_32x32x16_f16"},
    {"fp8_32x32", "", "v_mfma_f32_32x32x16_fp8_fp8", "v_mfma_scale_f32_32x32x64_f8f6f4"},
    {"fp32_32x32", "v_mfma_f32_32x32x2f32", "v_mfma_f32_32x32x2_f32", "v_mfma_f32_32x32x2_f32"}};

TEST_F(DeviceCode, AmdRatesAndProductsUseTheMatrixInstructionOfTheirType) {
  for (const CodeObject& object : code_objects()) {
    if (!is_amd(object)) continue;
    const Listing listing = disassemble(object);
    for (const Expected& row : kMatrixInstructions) {
      const std::string type = row.kernel, rate = "matrix_rate_" + type, product = "gemm_" + type;
      const std::string instruction = object.target == Target::gfx90a   ? row.gfx90a
                                      : object.target == Target::gfx942 ? row.gfx942
                                                                        : row.gfx950;
      EXPECT_EQ(listing.count(rate) == 1, !instruction.empty()) << object.name << " " << rate;
      if (instruction.empty()) continue;
      const auto& loop = listing.at(rate);
      // One iteration's, however often the compiler unrolled it; and nothing else of the kind.
      EXPECT_GE(count_of(loop, instruction), 4) << object.name << " " << rate;
      EXPECT_EQ(count_of(loop, instruction),
                std::count_if(loop.begin(), loop.end(), [](const std::string& m) { return m.find("mfma") != std::string::npos; }));
      EXPECT_GE(listing.count(product) ? count_of(listing.at(product), instruction) : 16, 16) << object.name << " " << product;
    }
  }
}

TEST_F(DeviceCode, AmdMemoryAccessIsInSixteenBytes) {
  for (const CodeObject& object : code_objects()) {
    if (!is_amd(object)) continue;
    const Listing listing = disassemble(object);
    for (const auto& [name, mnemonics] : listing) {
      for (const std::string& mnemonic : mnemonics) EXPECT_EQ(mnemonic.find("scratch_"), std::string::npos) << object.name << " " << name;
    }
    struct Row {
      const char* kernel;
      std::ptrdiff_t loads, stores;
    };
    for (const Row& row :
         {Row{"copy", 1, 1}, Row{"triad", 2, 1}, Row{"add_bf16", 2, 1}, Row{"swiglu_bf16", 2, 1}, Row{"adam_fp32", 4, 3}}) {
      const auto& mnemonics = listing.at(row.kernel);
      EXPECT_GE(count_of(mnemonics, "global_load_dwordx4"), row.loads) << object.name << " " << row.kernel;
      EXPECT_GE(count_of(mnemonics, "global_store_dwordx4"), row.stores) << object.name << " " << row.kernel;
      for (const char* narrow :
           {"global_load_dword", "global_load_dwordx2", "global_store_dword", "global_store_dwordx2", "global_load_ushort"}) {
        EXPECT_EQ(count_of(mnemonics, narrow), 0) << object.name << " " << row.kernel << " has " << narrow;
      }
    }
    // The product's operands, on both sides of shared memory.
    for (const char* mnemonic : {"global_load_dwordx4", "ds_write_b128", "ds_read_b128"}) {
      EXPECT_GE(count_of(listing.at("gemm_bf16"), mnemonic), 8) << object.name << " " << mnemonic;
    }
    // Attention backward multiplies on the matrix units and adds to dQ in the cache, not in a loop that compares and swaps.
    for (const char* name : {"attention_backward_bf16_d64", "attention_backward_bf16_d128"}) {
      const auto& mnemonics = listing.at(name);
      EXPECT_GE(
          std::count_if(mnemonics.begin(), mnemonics.end(), [](const std::string& m) { return m.rfind("v_mfma_f32_16x16x", 0) == 0; }), 20)
          << object.name << " " << name;
      EXPECT_GE(count_of(mnemonics, "global_atomic_add_f32"), 4) << object.name << " " << name;
      EXPECT_EQ(count_of(mnemonics, "global_atomic_cmpswap"), 0) << object.name << " " << name;
    }
  }
}
#endif

// ---- PTX
// ----------------------------------------------------------------------------------------------------------------------------------

// The text of each entry, from its name to the next.
std::map<std::string, std::string> entries_of(const CodeObject& object) {
  std::map<std::string, std::string> entries;
  std::istringstream text(reinterpret_cast<const char*>(object.data));
  const std::string mark = ".visible .entry ";
  std::string name;
  for (std::string line; std::getline(text, line);) {
    if (line.compare(0, mark.size(), mark) == 0) name = line.substr(mark.size(), line.find('(') - mark.size());
    entries[name] += line + "\n";
  }
  return entries;
}

TEST_F(DeviceCode, PtxNamesItsTargetAndEndsInANul) {
  for (const CodeObject& object : code_objects()) {
    if (is_amd(object)) continue;
    const std::string text(reinterpret_cast<const char*>(object.data));
    EXPECT_EQ(text.size(), object.size) << object.name;
    EXPECT_NE(text.find(".target " + std::string(object.name) + "\n"), std::string::npos) << object.name;
    EXPECT_NE(text.find(".version 8.4\n"), std::string::npos) << object.name;  // CUDA 12.4: the first that knows fp8 mma
  }
}

TEST_F(DeviceCode, PtxUsesMmaOfEachTypeAndVectorsOfSixteenBytes) {
  struct Row {
    const char *kernel, *instruction;
  };
  constexpr Row rows[] = {{"bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"},
                          {"fp16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"},
                          {"fp8", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"},
                          {"tf32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"},
                          {"fp64", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"}};
  for (const CodeObject& object : code_objects()) {
    if (is_amd(object)) continue;
    const auto entries = entries_of(object);
    for (const Row& row : rows) {
      for (const std::string kind : {"matrix_rate_", "gemm_"}) {
        const bool expected = std::string(row.kernel) != "fp8" || object.target != Target::sm_80;
        ASSERT_EQ(entries.count(kind + row.kernel) == 1, expected) << object.name << " " << kind << row.kernel;
        const std::string text = expected ? entries.at(kind + row.kernel) : row.instruction;
        EXPECT_NE(text.find(row.instruction), std::string::npos) << object.name << " " << kind << row.kernel;
      }
    }
    if (object.target == Target::sm_90a) {
      for (const char* type : {"bf16_wgmma", "fp16_wgmma", "tf32_wgmma", "fp8_wgmma"}) {
        for (const char* kind : {"matrix_rate_", "gemm_"})
          EXPECT_NE(entries.at(std::string(kind) + type).find("wgmma.mma_async.sync.aligned.m64n256k"), std::string::npos) << kind << type;
      }
      // Attention: copies that go on by themselves, scores of a whole tile, sums of dQ in memory several at a time, nothing of mma.sync.
      struct Pass {
        const char *kernel, *product, *store;
      };
      for (const Pass& pass : {Pass{"attention_bf16_d64_wgmma", "m64n64k16.f32.bf16.bf16", "st.global.v4.b32"},
                               Pass{"attention_bf16_d128_wgmma", "m64n128k16.f32.bf16.bf16", "st.global.v4.b32"},
                               Pass{"attention_backward_bf16_d64_wgmma", "m64n128k16.f32.bf16.bf16", "red.global.add.v2.f32"},
                               Pass{"attention_backward_bf16_d128_wgmma", "m64n64k16.f32.bf16.bf16", "red.global.add.v4.f32"}}) {
        const std::string& text = entries.at(pass.kernel);
        EXPECT_NE(text.find(std::string("wgmma.mma_async.sync.aligned.") + pass.product), std::string::npos) << pass.kernel;
        EXPECT_NE(text.find("cp.async.cg.shared.global"), std::string::npos) << pass.kernel;
        EXPECT_NE(text.find(pass.store), std::string::npos) << pass.kernel;
        EXPECT_EQ(text.find("mma.sync.aligned"), std::string::npos) << pass.kernel;
      }
      // Two blocks of the forward pass of 64 share a multiprocessor.
      EXPECT_NE(entries.at("attention_bf16_d64_wgmma").find(".minnctapersm 2"), std::string::npos);
    }
    for (const char* name : {"attention_backward_bf16_d64", "attention_backward_bf16_d128"}) {
      EXPECT_NE(entries.at(name).find("mma.sync.aligned.m16n8k16"), std::string::npos) << object.name << " " << name;
      EXPECT_NE(entries.at(name).find("red.global.add.f32"), std::string::npos) << object.name << " " << name;
    }
    for (const auto& [name, text] : entries) EXPECT_EQ(text.find("__local_depot"), std::string::npos) << object.name << " " << name;
    for (const char* name : {"triad", "copy", "gemm_bf16"}) {
      EXPECT_NE(entries.at(name).find("ld.global.v4.b32"), std::string::npos) << object.name << " " << name;
    }
    EXPECT_NE(entries.at("triad").find("st.global.v4.b32"), std::string::npos) << object.name;
  }
}

// ---- which object a device gets
// -------------------------------------------------------------------------------------------------------------

TEST_F(DeviceCode, ADeviceGetsItsOwnObject) {
  ASSERT_NE(code_object_for_amd("gfx90a:sramecc+:xnack-"), nullptr);
  EXPECT_EQ(code_object_for_amd("gfx90a:sramecc+:xnack-")->target, Target::gfx90a);
  EXPECT_EQ(code_object_for_amd("gfx1100"), nullptr);
  EXPECT_EQ(code_object_for_amd("sm_90"), nullptr);
  EXPECT_EQ(code_object_for_nvidia(8, 0)->target, Target::sm_80);
  EXPECT_EQ(code_object_for_nvidia(8, 9)->target, Target::sm_80);
  EXPECT_EQ(code_object_for_nvidia(9, 0)->target, Target::sm_90a);
  EXPECT_EQ(code_object_for_nvidia(10, 0)->target, Target::sm_90);
  EXPECT_EQ(code_object_for_nvidia(7, 5), nullptr);
  EXPECT_NE(why_no_code_object("gfx1100").find("gfx90a, gfx942, gfx950"), std::string::npos) << why_no_code_object("gfx1100");
}

}  // namespace
}  // namespace plimsoll::calibrate
