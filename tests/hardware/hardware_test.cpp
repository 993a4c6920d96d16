#include "plimsoll/hardware.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "plimsoll/error.hpp"
#include "plimsoll/machine.hpp"

namespace plimsoll {
namespace {

std::string message_of(const std::string& cluster) {
  try {
    parse_cluster(cluster);
  } catch (const Error& error) {
    return error.message() + " | " + error.hint();
  }
  return {};
}

TEST(Hardware, TextsOfClusters) {
  const auto check = [](const char* text, const char* device, std::int64_t nodes, int per_node) {
    const Cluster cluster = parse_cluster(text);
    EXPECT_EQ(cluster.accelerator.name, device) << text;
    EXPECT_EQ(cluster.nodes, nodes) << text;
    EXPECT_EQ(cluster.gpus_per_node, per_node) << text;
  };
  check("8xmi300x", "mi300x", 1, 8);
  check("4xh100-sxm", "h100-sxm", 1, 4);
  check("16x8xh100-sxm", "h100-sxm", 16, 8);
  check("64xH100-SXM5-80GB", "h100-sxm", 8, 8);
  check("2048x8xh100-sxm", "h100-sxm", 2048, 8);
  check("mi300x", "mi300x", 1, 1);
  check("hgx-b200", "b200", 1, 8);
  check("hgx-h100-oversubscribed", "h100-sxm", 64, 8);
  check("72xgb200", "gb200", 1, 72);
  check("8 x h100-sxm", "h100-sxm", 1, 8);  // as reports print it
  check("16,384 x h100-sxm", "h100-sxm", 2048, 8);
  check("2 x 4 x RTX-A6000", "rtxa6000", 2, 4);
  check("32x4xgb200", "gb200", 2, 64);  // whole trays of 4, as large a part of an NVLink domain as divides 128
}

TEST(Hardware, WhatIsUnknownOrAbsurdIsRefused) {
  EXPECT_NE(message_of("8xmi300xx").find("mi300x"), std::string::npos);
  EXPECT_NE(message_of("12xmi300x").find("no whole nodes"), std::string::npos);
  EXPECT_NE(message_of("1000000000000xmi300x").find("no sensible number"), std::string::npos);
  EXPECT_NE(message_of("1000000x1000000xmi300x").find("no sensible number"), std::string::npos);
  EXPECT_NE(message_of("0xmi300x").find("no sensible number"), std::string::npos);
  EXPECT_NE(message_of("16x16xmi300x").find("a node of mi300x has 8"), std::string::npos);
  for (const char* name : {"24GB consumer GPU", "unspecified", "MI250-128GB"}) {
    try {
      load_accelerator(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::refused) << name;
    }
  }
  for (const char* text : {"", "x", "8x", "8xx8", "no-such-file.json", "-8xmi300x", "8xmi300x/../x"})
    EXPECT_THROW(parse_cluster(text), Error) << text;
}

TEST(Hardware, EveryAliasLeadsToAShippedDevice) {
  const auto devices = shipped_accelerators();
  EXPECT_GE(devices.size(), 28u);
  for (const auto& [alias, name] : accelerator_aliases()) EXPECT_EQ(load_accelerator(alias).name, name) << alias;
  EXPECT_EQ(load_accelerator("MI250X-GCD-64GB").name, "mi250x");
  EXPECT_EQ(load_accelerator("a100").name, "a100-80gb-sxm");
  EXPECT_EQ(load_accelerator("H100-SXM5-96GB-HBM2e-500W").memory_usable.value.count, 101994987520);
}

// Every device: usable memory below the nominal (what the name counts in GiB or GB), sensible shares, rates sorted by width, a usual node.
TEST(Hardware, EveryDeviceIsConsistent) {
  for (const auto& name : shipped_accelerators()) {
    const Accelerator device = load_accelerator(name);
    EXPECT_EQ(device.name, name);
    EXPECT_LE(device.memory_usable.value.count, device.memory_nominal.value.count * 108 / 100) << name;
    EXPECT_GT(device.memory_usable.value.count, device.memory_nominal.value.count * 85 / 100) << name;
    for (const auto& rate : device.rates) {
      EXPECT_GT(rate.sustained.value, 0.1) << name;
      EXPECT_LE(rate.sustained.value, 1) << name;
    }
    EXPECT_EQ(device.compute_units % device.dies, 0) << name;
    EXPECT_NO_THROW(parse_cluster(device.node)) << name;
    EXPECT_EQ(cluster_of(name, 1).accelerator.name, name);
  }
}

// Names that people type and those that nvidia-smi and torch.cuda.get_device_name give.
TEST(Hardware, DevicesThatPeopleOwnAreFoundByTheirNames) {
  const std::vector<std::pair<const char*, const char*>> names = {
      {"4090", "rtx4090"},           {"3080", "rtx3080"},      {"2080ti", "rtx2080ti"},        {"rtx 4080", "rtx4080"},
      {"RTX-5080", "rtx5080"},       {"a5000", "rtxa5000"},    {"NVIDIA A40", "a40"},          {"NVIDIA A10G", "a10g"},
      {"NVIDIA H800", "h800"},       {"A800-80GB", "a800"},    {"AMD Instinct MI210", "mi210"}, {"NVIDIA GH200 480GB", "gh200"},
      {"rtx-pro-6000", "rtxpro6000"}, {"2080-ti", "rtx2080ti"}, {"NVIDIA RTX A6000", "rtxa6000"},
      {"Tesla V100-SXM2-32GB", "v100-sxm2"}, {"Tesla V100-SXM2-16GB", "v100-sxm2-16gb"}, {"Tesla T4", "t4"}, {"L4 24 GB", "l4"},
      {"H100 SXM", "h100-sxm"}, {"NVIDIA H100 80GB HBM3", "h100-sxm"}, {"H100-SXM5-80GB", "h100-sxm"}, {"A100 40GB", "a100-40gb"},
      {"NVIDIA A100-SXM4-40GB", "a100-40gb"}, {"B200-SXM-180GB", "b200"}, {"AMD Instinct MI300X OAM 192GB", "mi300x"},
      {"RTX-6000-Ada-48GB", "rtx6000-ada"}, {"NVIDIA RTX 6000 Ada Generation", "rtx6000-ada"},
      {"NVIDIA A100-PCIE-40GB", "a100-40gb-pcie"}, {"Tesla V100-PCIE-32GB", "v100-pcie-32gb"}, {"NVIDIA GeForce RTX 3060", "rtx3060"},
      {"RTX 3060 12GB", "rtx3060"}, {"3060", "rtx3060"}, {"NVIDIA GeForce RTX 4070 Ti", "rtx4070ti"}, {"4070ti", "rtx4070ti"},
      {"NVIDIA GB10", "gb10"}, {"DGX-Spark", "gb10"}};
  for (const auto& [said, name] : names) EXPECT_EQ(load_accelerator(said).name, name) << said;
  const Cluster two = parse_cluster("2x4090");
  EXPECT_EQ(two.accelerator.name, "rtx4090");
  EXPECT_EQ(two.gpus(), 2);
}

// A memory that the device does not have, or a board that is not here, is no other device.
TEST(Hardware, AnotherMemoryIsAnotherDevice) {
  for (const char* name : {"H100 SXM 40GB", "A100-PCIE-24GB", "RTX 6000", "L40S 24GB", "NVIDIA", "Tesla P100", "80GB"})
    EXPECT_THROW(load_accelerator(name), Error) << name;
}

// Products added up in fp32: units · operations of one in a clock · boost clock, 512 on a GeForce (and AWS's A10G), 1,024 on the boards for
// work, by the whitepapers of Turing, GA102, Ada and RTX Blackwell; sheets print three digits or four.
TEST(Hardware, PeaksOfBoardsAreTheirUnitsTimesTheirClock) {
  const std::vector<std::pair<const char*, double>> boards = {{"rtx2080ti", 512}, {"rtx3080", 512}, {"rtx3090", 512},  {"a10g", 512},
                                                              {"rtx4080", 512},   {"rtx4090", 512}, {"rtx5080", 512},  {"rtx5090", 512},
                                                              {"a40", 1024},      {"rtxa5000", 1024}, {"rtxa6000", 1024}, {"rtxpro6000", 1024},
                                                              {"rtx3060", 512},   {"rtx4070ti", 512}, {"gb10", 1024}};
  for (const auto& [name, operations] : boards) {
    const Accelerator board = load_accelerator(name);
    const double peak = board.compute_units * operations * board.clock.value.value;
    EXPECT_NEAR(board.peak(MathType::fp16).value / peak, 1, 0.003) << name;
  }
}

// Export rules took NVLink (and fp64 of an H800) from the same silicon: the devices are their siblings, their nodes are slower.
TEST(Hardware, DevicesForExportDifferInTheirLinks) {
  for (const auto& [name, sibling] : {std::pair{"a800", "a100-80gb-sxm"}, std::pair{"h800", "h100-sxm"}}) {
    const Accelerator cut = load_accelerator(name), whole = load_accelerator(sibling);
    EXPECT_EQ(cut.peak(MathType::bf16), whole.peak(MathType::bf16)) << name;
    EXPECT_EQ(cut.memory_bandwidth.value, whole.memory_bandwidth.value) << name;
    EXPECT_EQ(parse_cluster(cut.node).node.gpu_link.bandwidth.value.value, 200e9) << name;
    EXPECT_GT(parse_cluster(whole.node).node.gpu_link.bandwidth.value.value, 200e9) << sibling;
  }
  EXPECT_LT(load_accelerator("h800").peak(MathType::fp64).value, 2e12);
}

// One GCD of an MI250X is one device: half of the module's 383 TFLOP/s, 3,276.8 GB/s and 128 GiB.
TEST(Hardware, OneDieOfAnMi250x) {
  const Accelerator device = load_accelerator("mi250x");
  EXPECT_DOUBLE_EQ(device.peak(MathType::bf16).value, 191.5e12);
  EXPECT_DOUBLE_EQ(device.memory_bandwidth.value.value, 1638.4e9);
  EXPECT_EQ(device.memory_nominal.value, 64_GiB);
}

class DamagedFile : public testing::Test {
 protected:
  /// The shipped file with one text replaced, read again by path.
  std::string error_after(const std::string& from, const std::string& to) {
    std::ifstream in(std::string(PLIMSOLL_SOURCE_DIR) + "/hardware/accelerators/mi300x.json");
    std::string text((std::istreambuf_iterator<char>(in)), {});
    const auto at = text.find(from);
    if (at == std::string::npos) return "the text to damage is not in the file";
    text.replace(at, from.size(), to);
    const auto path = std::filesystem::temp_directory_path() / "plimsoll-damaged-device.json";
    std::ofstream(path) << text;
    std::string found;
    try {
      load_accelerator(path.string());
    } catch (const Error& error) {
      found = error.where() + " " + error.message() + " " + error.hint();
    }
    std::filesystem::remove(path);
    return found;
  }
};

TEST_F(DamagedFile, NamesThePlace) {
  EXPECT_EQ(error_after("MI300X", "MI300Y"), "");
  EXPECT_NE(error_after("5300 GB/s", "5300 GB").find("/memory/bandwidth/value"), std::string::npos);
  EXPECT_NE(error_after("5300 GB/s", "0 GB/s").find("/memory/bandwidth/value"), std::string::npos);
  EXPECT_NE(error_after("5300 GB/s", "-1 GB/s").find("/memory/bandwidth/value"), std::string::npos);
  EXPECT_NE(error_after("\"efficiency\"", "\"eficiency\"").find("efficiency"), std::string::npos);
  EXPECT_NE(error_after("\"datasheet\"", "\"datashet\"").find("did you mean 'datasheet'"), std::string::npos);
  EXPECT_NE(error_after("\"source\": \"rocm-specs\"", "\"source\": \"nobody\"").find("not explained"), std::string::npos);
  EXPECT_NE(error_after("\"units\": 304", "\"units\": 30000000000").find("/compute/units"), std::string::npos);
  EXPECT_NE(error_after("\"units\": 304", "\"units\": 304, \"unitz\": 1").find("unitz"), std::string::npos);
  EXPECT_NE(error_after("{", "[").find("plimsoll-damaged-device.json"), std::string::npos);
}

TEST(Hardware, ListAndSheets) {
  const std::string list = hardware_list();
  for (const auto& name : shipped_accelerators()) EXPECT_NE(list.find(name), std::string::npos);
  for (const auto& name : shipped_clusters()) {
    EXPECT_NE(list.find(name), std::string::npos);
    EXPECT_NE(hardware_sheet(name).find("Sources"), std::string::npos);
  }
  const std::string sheet = hardware_sheet("mi300x");
  EXPECT_NE(sheet.find("1307.4 TFLOP/s"), std::string::npos);
  EXPECT_NE(sheet.find("datasheet"), std::string::npos);
  EXPECT_THROW(hardware_sheet("mi3000"), Error);
}

// A template of every shipped device and of its nodes is a file that is read, and nothing of it is told as known.
TEST(Hardware, TemplatesAreFiles) {
  const std::string path = ::testing::TempDir() + "template.json";
  for (const std::string& name : shipped_accelerators())
    for (const char* kind : {"gpu", "cluster"}) {
      const std::string text = hardware_template(kind, name);
      std::ofstream(path) << text;
      EXPECT_NO_THROW((void)parse_cluster(path)) << kind << " like " << name;
      for (const char* provenance : {"measured", "calibrated", "derived", "datasheet"})
        EXPECT_EQ(text.find("\"provenance\": \"" + std::string(provenance)), std::string::npos) << kind << " like " << name;
    }
  EXPECT_THROW(hardware_template("rack", ""), Error);
}

// All that a file lacks is told at once.
TEST(Hardware, AllMissingKeysAreTold) {
  const std::string path = ::testing::TempDir() + "lacking.json";
  std::ofstream(path) << R"({"name": "mine", "vendor": "NVIDIA", "memory": {"type": "HBM3"}})";
  const std::string told = message_of(path);
  for (const char* key : {"title", "memory.usable", "compute.units", "gemm.kernels", "overheads.context", "sources", "--template gpu"})
    EXPECT_NE(told.find(key), std::string::npos) << key << ": " << told;
  EXPECT_EQ(told.find("memory.type"), std::string::npos) << told;
}

}  // namespace
}  // namespace plimsoll
