// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/checkpoint/huggingface/other_weights.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using ostrakon::testing::error_of;
using ostrakon::testing::ScratchFolder;
using ostrakon::testing::write_bytes;

struct Found {
  std::vector<const char*> names;  ///< files of a folder; the first one is reported
  const char* bytes;
  const char* what;
  const char* how;
};

TEST(OtherWeights, AreNamedWithTheirConversion) {
  const std::vector<Found> rows = {
      {{"pytorch_model.bin", "config.json", "flax_model.msgpack", "consolidated.00.pth"},
       "PK\x03\x04",
       "weights in PyTorch's format",
       ".save_pretrained(\"NEW\")"},
      {{"pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"},
       "\x80\x02}",
       "weights in PyTorch's format",
       ".save_pretrained(\"NEW\")"},
      {{"pytorch_model.bin.index.json"}, "{}", "in PyTorch's format", ".save_pretrained(\"NEW\")"},
      {{"consolidated.00.pth", "consolidated.01.pth", "params.json"},
       "PK\x03\x04",
       "weights in Meta's own format",
       "convert_llama_weights_to_hf.py"},
      {{"llama-Q4_K_M.gguf"}, "GGUF\x03", "weights in GGUF", "gguf_file=\"FILE\""},
      {{"tf_model.h5"}, "\x89HDF\r\n\x1a\n", "TensorFlow's format", "from_tf=True"},
      {{"model.ckpt-100.index"}, "x", "TensorFlow's format", "from_tf=True"},
      {{"flax_model.msgpack"}, "x", "Flax' format", "from_flax=True"},
      {{"adapter_model.bin"}, "PK\x03\x04", "an adapter without its model", "merge_and_unload()"},
      {{"last.ckpt", "notes.txt"}, "PK\x03\x04", "PyTorch's format", ".save_pretrained(\"NEW\")"},
  };
  for (const Found& row : rows) {
    const ScratchFolder folder;
    for (const char* const name : row.names) write_bytes(folder.file(name), row.bytes);
    const std::string path = folder.file("");
    const std::string error = error_of([&] { SafetensorsReader reader(path); });
    EXPECT_HAS(error, text("'", path,
                           "' has neither model.safetensors.index.json nor "
                           "model.safetensors, but \"",
                           row.names[0], "\", "));
    for (const std::string& found :
         {error, error_of([&] { require_no_other_weights(folder.file(row.names[0])); }),
          // A deck's initial weights, whatever its model is.
          error_of([&] { open_parameters(path, {}, 8); }),
          error_of([&] { open_parameters(folder.file(row.names[0]), {}, 8); })}) {
      EXPECT_HAS(found, row.what);
      EXPECT_HAS(found, row.how);
      EXPECT_HAS(found, row.names[0]);
    }
    // What this program reads counts before others.
    write_bytes(folder.file("weights.h5"), "");
    EXPECT_EQ(error_of([&] { require_no_other_weights(path); }), "no error");
  }
}

TEST(OtherWeights, SafetensorsUnderOtherNamesAreExplained) {
  for (const auto& [name, how] : std::vector<std::pair<const char*, const char*>>{
           {"model-00001-of-00003.safetensors", "expected model.safetensors.index.json next to"},
           {"adapter_model.safetensors", "import MODEL OUT.h5 --adapters FOLDER"},
           {"consolidated.safetensors", "convert_mistral_weights_to_hf.py"},
           {"mine.safetensors", "name that file instead"}}) {
    const ScratchFolder folder;
    const std::string path = folder.file(name);
    write_bytes(path, std::string("\2\0\0\0\0\0\0\0{}", 10));
    const std::string error = error_of([&] { require_no_other_weights(folder.file("")); });
    EXPECT_HAS(error, text(", but \"", name, "\", "));
    EXPECT_HAS(error, how);
    EXPECT_EQ(error_of([&] { SafetensorsReader reader(path); }), "no error");
    write_bytes(folder.file("model.safetensors"), "");
    EXPECT_EQ(error_of([&] { require_no_other_weights(folder.file("")); }), "no error");
  }
}

TEST(OtherWeights, ContentCountsForOtherNames) {
  const ScratchFolder folder;
  const auto error = [&](const std::string& name, const std::string& bytes) {
    write_bytes(folder.file(name), bytes);
    return error_of([&] { require_no_other_weights(folder.file(name)); });
  };
  EXPECT_HAS(error("model", "GGUF\x03"), "weights in GGUF");
  EXPECT_HAS(error("model", "PK\x03\x04"), "weights in PyTorch's format");
  EXPECT_HAS(error("model", "\x80\x02}"), "weights in PyTorch's format");
  EXPECT_EQ(error("model.pt", std::string("\2\0\0\0\0\0\0\0{}", 10)), "no error");  // safetensors
  EXPECT_EQ(error("model.pt", "\x89HDF\r\n\x1a\n..."), "no error");
  EXPECT_EQ(error("model", "text"), "no error");
  EXPECT_EQ(error("model", ""), "no error");
  EXPECT_EQ(error_of([&] { require_no_other_weights(folder.file("none")); }), "no error");
}

}  // namespace
}  // namespace ostrakon::checkpoint
