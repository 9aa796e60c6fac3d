// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizer.hpp>

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/text/tokenizers/byte_tokenizer.hpp>
#include <ostrakon/text/tokenizers/sentencepiece_tokenizer.hpp>
#include <ostrakon/text/tokenizers/tokenizer_json.hpp>

namespace ostrakon::texts {

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr const char *json = "tokenizer.json", *model = "tokenizer.model";
  if (path == data::ByteTokenizer::name) return byte_tokenizer();
  if (is_folder(path)) {
    const fs::path folder(path);
    if (is_plain_file((folder / json).string()))
      return open_tokenizer_json((folder / json).string());
    if (is_plain_file((folder / model).string()))
      return open_sentencepiece((folder / model).string());
    throw Error(text("the folder '", path, "' has no tokenizer; expected ", json, " or ", model));
  }
  const std::string kind = fs::path(path).extension().string();
  if (kind == ".json") return open_tokenizer_json(path);
  if (kind == ".model") return open_sentencepiece(path);
  throw Error(text("'", path, "' is no tokenizer; expected byte, the folder of a model, or a file ",
                   "whose name ends with .json or .model"));
}

}  // namespace ostrakon::texts
