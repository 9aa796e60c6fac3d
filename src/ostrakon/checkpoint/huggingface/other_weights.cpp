// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/other_weights.hpp>

#include <algorithm>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <system_error>
#include <vector>

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Files whose names begin and end so.
struct OtherWeights {
  const char* begin;
  const char* end;
  const char* what;
  const char* how;
};

constexpr const char* safetensors_ending = ".safetensors";
constexpr OtherWeights pytorch = {
    "pytorch_model", ".bin", "weights in PyTorch's format",
    "convert them with transformers: AutoModelForCausalLM.from_pretrained(\"FOLDER\")"
    ".save_pretrained(\"NEW\") writes safetensors and config.json"};
constexpr OtherWeights gguf = {
    "", ".gguf", "weights in GGUF, llama.cpp's format",
    "prefer the model's own safetensors, as GGUF is mostly quantized; or convert it with "
    "transformers: AutoModelForCausalLM.from_pretrained(\"FOLDER\", gguf_file=\"FILE\")"
    ".save_pretrained(\"NEW\")"};
constexpr const char* with_old_transformers =
    "convert them with version 4 of transformers: AutoModelForCausalLM.from_pretrained(\"FOLDER\", "
    "from_tf=True), or from_flax=True for Flax, .save_pretrained(\"NEW\")";
constexpr const char* merge_adapter =
    "merge it into its model with peft: AutoPeftModelForCausalLM.from_pretrained(\"FOLDER\")"
    ".merge_and_unload().save_pretrained(\"NEW\")";
constexpr const char* convert_metas =
    "convert them with transformers' convert_llama_weights_to_hf.py (in its repository, "
    "src/transformers/models/llama): --input_dir FOLDER --output_dir NEW --model_size SIZE "
    "--llama_version VERSION";

/// Files in the order in which a folder is searched for them: those that are easiest to use first.
constexpr OtherWeights formats[] = {
    {"model-", safetensors_ending, "one of several files without their index",
     "expected model.safetensors.index.json next to them, which is published with them"},
    {"adapter_model", safetensors_ending, "an adapter without its model",
     "name it with its model: lora.initial in a deck, or ostrakon-checkpoint import MODEL OUT.h5 "
     "--adapters FOLDER"},
    {"consolidated", safetensors_ending, "weights under Mistral's own names",
     "expected the model's files for transformers; or convert them with transformers' "
     "convert_mistral_weights_to_hf.py (in its repository, src/transformers/models/mistral): "
     "--input_dir FOLDER --output_dir NEW --model_size SIZE"},
    {"", safetensors_ending, "safetensors under another name", "name that file instead"},
    pytorch,
    {"pytorch_model", ".bin.index.json", pytorch.what, pytorch.how},
    {"adapter_model", ".bin", "an adapter without its model", merge_adapter},
    {"consolidated.", ".pth", "weights in Meta's own format", convert_metas},
    gguf,
    {"", ".ggml", "weights in an older format of llama.cpp", "expected the model's safetensors"},
    {"tf_model", ".h5", "weights in TensorFlow's format", with_old_transformers},
    {"model.ckpt", ".index", "weights in TensorFlow's format", with_old_transformers},
    {"saved_model", ".pb", "weights in TensorFlow's format", with_old_transformers},
    {"flax_model", ".msgpack", "weights in Flax' format", with_old_transformers},
    {"flax_model", ".msgpack.index.json", "weights in Flax' format", with_old_transformers},
    {"", ".pth", pytorch.what, pytorch.how},
    {"", ".pt", pytorch.what, pytorch.how},
    {"", ".ckpt", pytorch.what, pytorch.how},
};

bool is_named(const std::string& name, const OtherWeights& format) {
  const std::string begin = format.begin, end = format.end;
  return name.size() >= begin.size() + end.size() && name.compare(0, begin.size(), begin) == 0 &&
         name.compare(name.size() - end.size(), end.size(), end) == 0;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code problem;
  fs::directory_iterator entry(folder, problem);
  while (!problem && entry != fs::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(problem);
  }
  require(!problem, "can't list folder '", folder, "': ", problem.message());
  std::sort(names.begin(), names.end());
  return names;
}

void check_folder(const std::string& path) {
  for (const char* const ours : {"model.safetensors.index.json", "model.safetensors", "weights.h5"})
    if (is_there((fs::path(path) / ours).string())) return;
  const std::vector<std::string> names = names_in(path);
  for (const OtherWeights& format : formats)
    for (const std::string& name : names)
      require(!is_named(name, format), "folder '", path,
              "' has neither model.safetensors.index.json nor model.safetensors, but ", shown(name),
              ", ", format.what, "; ", format.how);
}

void check_file(const std::string& path) {
  const PlainFile file(path, PlainFile::Mode::read);
  std::string head(9, '\0');
  head.resize(static_cast<std::size_t>(file.read_up_to(0, 9, head.data())));
  const auto begins = [&](const char* mark) { return head.rfind(mark, 0) == 0; };
  const std::string name = fs::path(path).filename().string();
  const bool is_hdf5 = begins("\x89HDF\r\n\x1a\n");
  const bool is_safetensors = head.size() == 9 && head[8] == '{' && head[0] != '{';
  if (is_safetensors || (is_hdf5 && name.rfind("tf_model", 0) != 0)) return;
  const auto refuse = [&](const OtherWeights& format) {
    throw Error(text("'", path, "' is ", format.what, "; ", format.how));
  };
  for (const OtherWeights& format : formats)
    if (format.end != safetensors_ending && is_named(name, format)) refuse(format);
  if (begins("GGUF")) refuse(gguf);
  // PyTorch writes zip archives, and wrote pickles of protocol 2 before.
  if (begins("PK\x03\x04") || begins("\x80\x02")) refuse(pytorch);
}

}  // namespace

void require_no_other_weights(const std::string& path) {
  if (is_folder(path))
    check_folder(path);
  else if (is_plain_file(path))
    check_file(path);
}

}  // namespace ostrakon::checkpoint
