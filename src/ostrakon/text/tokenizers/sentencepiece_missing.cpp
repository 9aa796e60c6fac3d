// SPDX-License-Identifier: Apache-2.0
// Stands in for sentencepiece_tokenizer.cpp where SentencePiece was not found.
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/tokenizers/sentencepiece_tokenizer.hpp>

namespace ostrakon::texts {

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& path) {
  throw Error(text(
      "'", path,
      "' is a model of SentencePiece, and this Ostrakon was built without that library: install it "
      "(Debian package libsentencepiece-dev, Spack package sentencepiece) and build again; or use "
      "a tokenizer.json of the same model"));
}

}  // namespace ostrakon::texts
