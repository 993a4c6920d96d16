// Packages of several files: a folder, a wheel made of it, wheels that lie. data/package holds two of our own wording: `parts`, whose
// files import each other in every way, and one in the shape of transformers.
#include "code/package.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "code/network.hpp"
#include "devices.hpp"
#include "plimsoll/code.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "program/programs.hpp"

namespace plimsoll::code {
namespace {

const std::string kFolder = std::string(PLIMSOLL_SOURCE_DIR) + "/tests/code/data/package";

std::string read(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// ---- zip files (APPNOTE.TXT 4.3) ---------------------------------------------------------------------------------------

std::string number(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

std::string deflated(const std::string& text) {
  std::string packed(compressBound(text.size()) + 16, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

struct Member {
  std::string name, packed;
  std::uint32_t whole = 0, checksum = 0, method = 8, flags = 0;
};

Member member(const std::string& name, const std::string& text, bool stored = false) {
  const auto checksum = crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
  return {name, stored ? text : deflated(text), static_cast<std::uint32_t>(text.size()), static_cast<std::uint32_t>(checksum), stored ? 0U : 8U, 0};
}

std::string zipped(const std::vector<Member>& members) {
  std::string file, directory;
  for (const Member& each : members) {
    const std::string facts = number(each.flags, 2) + number(each.method, 2) + number(0, 4) + number(each.checksum, 4) +
                              number(each.packed.size(), 4) + number(each.whole, 4) + number(each.name.size(), 2) + number(0, 2);
    directory += "PK\x01\x02" + number(20, 2) + number(20, 2) + facts + number(0, 2) + number(0, 2) + number(0, 2) + number(0, 4) +
                 number(file.size(), 4) + each.name;
    file += "PK\x03\x04" + number(20, 2) + facts + each.name + each.packed;
  }
  const std::uint64_t start = file.size();
  return file + directory + "PK\x05\x06" + number(0, 4) + number(members.size(), 2) + number(members.size(), 2) + number(directory.size(), 4) +
         number(start, 4) + number(0, 2);
}

/// A file that goes with the test.
class Written {
 public:
  explicit Written(const std::string& bytes) {
    static int count = 0;
    path_ = (std::filesystem::temp_directory_path() / ("plimsoll-" + std::to_string(getpid()) + "-" + std::to_string(count++) + ".whl")).string();
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~Written() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string wheel_of_folder() {
  std::vector<Member> members;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kFolder))
    if (entry.is_regular_file())
      members.push_back(member(std::filesystem::relative(entry.path(), kFolder).generic_string(), read(entry.path()), members.size() % 2 == 0));
  return zipped(members);
}

std::string error_of_wheel(const std::string& bytes, const std::string& file = "a.py") {
  const Written wheel(bytes);
  try {
    (void)open_wheel(wheel.path())->read(file);
  } catch (const Error& error) {
    return error.message();
  }
  return "none";
}

TEST(Wheel, GivesWhatTheFolderHas) {
  const Written wheel(wheel_of_folder());
  const auto packed = open_wheel(wheel.path()), folder = open_package(kFolder);
  for (const char* file : {"transformers/__init__.py", "transformers/models/tiny/modeling_tiny.py", "parts/shared.py"}) {
    ASSERT_TRUE(packed->read(file).has_value()) << file;
    EXPECT_EQ(packed->read(file), folder->read(file)) << file;
  }
  EXPECT_FALSE(packed->read("parts/none.py").has_value());
  EXPECT_FALSE(folder->read("parts/none.py").has_value());
}

TEST(Wheel, DamageIsToldAndLiesAreBounded) {
  const Member good = member("a.py", "x = 1\n");
  EXPECT_EQ(error_of_wheel(zipped({good})), "none");
  EXPECT_EQ(error_of_wheel("no zip file"), "is no wheel: a zip file ends otherwise");
  EXPECT_EQ(error_of_wheel(""), "is no wheel: a zip file ends otherwise");
  Member lie = good;
  lie.checksum ^= 1;
  EXPECT_EQ(error_of_wheel(zipped({lie})), "is damaged: its checksum differs");
  lie = good;
  lie.whole += 1;
  EXPECT_EQ(error_of_wheel(zipped({lie})), "is damaged: it does not unpack to the size that the wheel tells");
  lie = good;
  lie.flags = 1;
  EXPECT_EQ(error_of_wheel(zipped({lie})), "is encrypted");
  lie = good;
  lie.method = 14;
  EXPECT_EQ(error_of_wheel(zipped({lie})), "is packed by method 14");
  // A gigabyte of zeros in a megabyte: refused by what the directory says, or where it unpacks to more than that.
  Member bomb = member("a.py", std::string(std::size_t{8} << 20, '\0'));
  EXPECT_EQ(error_of_wheel(zipped({bomb})), "is longer than 4 MiB");
  bomb.whole = 100;
  EXPECT_EQ(error_of_wheel(zipped({bomb})), "is damaged: it does not unpack to the size that the wheel tells");
  std::string cut = zipped({good});
  cut.replace(cut.size() - 6, 4, number(0x7fffffff, 4));  // where the directory starts
  EXPECT_EQ(error_of_wheel(cut), "is cut off: it lies behind the end of the wheel");
}

TEST(Wheel, AnyBytesAreAWheelOrAnError) {
  const std::string whole = zipped({member("a.py", "x = 1\n"), member("b/c.py", std::string(500, 'y'), true)});
  std::mt19937 random(7);
  for (int turn = 0; turn < 3000; ++turn) {
    std::string bytes = whole;
    for (std::size_t changes = 1 + random() % 4; changes > 0; --changes) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    (void)error_of_wheel(bytes);
    (void)error_of_wheel(bytes, "b/c.py");
  }
}

TEST(Packages, FilesOfOnesOwnImportEachOther) {
  CodeModel code;
  code.where = kFolder + "/parts/model.py";
  code.text = read(code.where);
  code.folder = kFolder + "/parts";
  code.class_name = "Net";
  code.inputs = {"x:float32[B,8]", "y:float32[B,8]"};
  EXPECT_EQ(model_of_code(code).parameters(), 8 * 8 + 8);
  code.folder.clear();  // the text alone
  try {
    (void)model_of_code(code);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("imported from elsewhere"), std::string::npos) << error.message();
  }
}

using Options = std::vector<std::pair<std::string, std::string>>;

StepProgram program_of(const Model& model, Options options, const std::string& cluster_name) {
  const Cluster cluster = parse_cluster(cluster_name);
  options.insert(options.end(), {{"framework", "transformers"}, {"seq_len", "64"}, {"micro_batch", "2"}});
  Strategy said;
  set_options(said, options);
  const Strategy strategy = resolve(said, model, cluster);
  return program::rank_source(program::on_cluster(cluster, model, strategy))->rank(0);
}

TEST(Packages, AModelTypeOfTransformersShape) {
  const Written wheel(wheel_of_folder());
  const Model model = model_of_package({kFolder, {}, {}, "tiny", {}});
  // The head is the embedding: 300 x 64; a layer: norm 2 x 64, 64 x 192 + 192, 64 x 64 + 64.
  EXPECT_EQ(model.parameters(), 300 * 64 + 2 * (128 + 64 * 192 + 192 + 64 * 64 + 64));
  EXPECT_EQ(model.architecture, "TinyForCausalLM");
  EXPECT_EQ(model.layers, 2);
  for (const Options& options : {Options{}, Options{{"recompute", "full"}}, Options{{"attention", "eager"}}, Options{{"precision", "fp32"}}}) {
    const StepProgram program = program_of(model, options, "1xh100-sxm");
    EXPECT_EQ(program::told(program), program::told(program_of(model_of_package({wheel.path(), {}, {}, "tiny", {}}), options, "1xh100-sxm")));
    EXPECT_GT(program::asked(program).launches, 50);
  }
  EXPECT_GT(program::asked(program_of(model, {{"recompute", "full"}}, "1xh100-sxm")).launches,
            program::asked(program_of(model, {}, "1xh100-sxm")).launches);
  EXPECT_GT(program::asked(program_of(model, {{"data_parallel", "ddp"}}, "2xh100-sxm")).collectives, 0);
}

TEST(Packages, ConfigurationsAreRun) {
  const auto built = [](const char* config) { return model_of_package({kFolder, config, "config.json", {}, {}}); };
  // attribute_map: n_embd is hidden_size; values come over the defaults; layers that attend are every other one's.
  EXPECT_EQ(built(R"({"model_type": "tiny", "n_embd": 32, "num_hidden_layers": 1})").parameters(),
            300 * 32 + 64 + 32 * 96 + 96 + 32 * 32 + 32);
  EXPECT_EQ(built(R"({"model_type": "tiny", "tie_word_embeddings": false})").parameters() - built(R"({"model_type": "tiny"})").parameters(),
            300 * 64);
  EXPECT_EQ(built(R"({"model_type": "tiny-sister"})").architecture, "TinyForCausalLM");
}

TEST(Packages, CodeBesideAConfiguration) {
  const std::string folder = std::string(PLIMSOLL_SOURCE_DIR) + "/tests/code/data/package/own";
  const Model model = model_of_package({kFolder, read(folder + "/config.json"), "config.json", {}, {}, folder});
  // Embedding 100 x 16, a head of its own, and nothing between.
  EXPECT_EQ(model.parameters(), 2 * 100 * 16);
  EXPECT_EQ(model.architecture, "OwnForCausalLM");
  EXPECT_GT(program::asked(program_of(model, {}, "1xh100-sxm")).launches, 20);
}

TEST(Packages, BadInputIsToldByName) {
  const auto error_of = [](const PackageModel& package) -> std::string {
    try {
      (void)model_of_package(package);
    } catch (const Error& error) {
      return error.message() + (error.hint().empty() ? "" : " | " + error.hint());
    }
    return "none";
  };
  EXPECT_EQ(error_of({kFolder, {}, {}, "tinny", {}}), "has no model type 'tinny' | did you mean 'tiny'?");
  EXPECT_EQ(error_of({kFolder, "[]", "config.json", {}, {}}), "is no JSON object | a config.json");
  EXPECT_EQ(error_of({kFolder, "{}", "config.json", {}, {}}), "has no model_type | a config.json of transformers");
  EXPECT_EQ(error_of({kFolder, R"({"model_type": "tiny", "num_attention_heads": "four"})", "config.json", {}, {}}), "none");  // asked for in forward
  EXPECT_NE(error_of({kFolder, R"({"model_type": "tiny", "hidden_size": null})", "config.json", {}, {}}).find("TypeError"), std::string::npos);
  EXPECT_EQ(error_of({kFolder + "/none", {}, {}, "tiny", {}}).substr(0, 12), "is not there");
}

}  // namespace
}  // namespace plimsoll::code
