// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/byte_tokenizer.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/text/utf8.hpp>

namespace ostrakon::texts {
namespace {

using Bytes = data::ByteTokenizer;

class ByteEncoder : public Tokenizer::Encoder {
 public:
  void encode(std::string_view text, bool, std::vector<std::int32_t>& ids) override {
    Bytes::encode(text, ids);
  }
};

/// Holds back the beginning of a character until the rest of it is there.
class ByteStream : public Tokenizer::Stream {
 public:
  std::string next(std::int32_t id) override {
    bytes_ += Bytes::decode(&id, 1);
    std::size_t at = 0;
    while (at < bytes_.size()) {
      bool complete = false;
      const std::size_t bytes = subpart(bytes_, at, complete);
      const auto first = static_cast<unsigned char>(bytes_[at]);
      const bool may_go_on =
          !complete && at + bytes == bytes_.size() && first >= 0xc2 && first <= 0xf4;
      if (may_go_on) break;
      at += bytes;
    }
    const std::string whole = bytes_.substr(0, at);
    bytes_.erase(0, at);
    return whole;
  }
  std::string finish() override { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteLevelTokens : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t vocabulary() const override { return Bytes::vocabulary; }
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<ByteEncoder>(); }
  Around around() const override { return {}; }
  std::optional<std::int32_t> begin() const override { return std::nullopt; }
  std::optional<std::int32_t> end() const override { return Bytes::end_of_text; }
  std::vector<std::int32_t> ends() const override { return {Bytes::end_of_text}; }
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<unsigned char>(token[0]);
  }
  std::string token(std::int32_t id) const override { return Bytes::decode(&id, 1); }
  bool is_special(std::int32_t id) const override { return id == Bytes::end_of_text; }
  std::string decode(const std::int32_t* ids, std::int64_t count, bool) const override {
    return Bytes::decode(ids, count);
  }
  std::unique_ptr<Stream> stream(bool) const override { return std::make_unique<ByteStream>(); }

 private:
  std::string name_ = Bytes::name;
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteLevelTokens>(); }

}  // namespace ostrakon::texts
