// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/tokenizer.hpp>
#include <stdexcept>
#include <string>

namespace ostrakon::testing {

/// A tokenizer for tests: the bytes of UTF-8, and 300 for the special token "<s>". It refuses other
/// bytes.
class LetterTokenizer : public texts::Tokenizer {
 public:
  static constexpr std::int32_t special = 300;

  const std::string& name() const override { return name_; }
  std::int64_t vocabulary() const override { return special + 1; }
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<Letters>(); }
  Around around() const override { return {}; }
  std::optional<std::int32_t> begin() const override { return {}; }
  std::optional<std::int32_t> end() const override { return special; }
  std::vector<std::int32_t> ends() const override { return {special}; }
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    return token == "<s>" ? std::optional<std::int32_t>(special) : std::nullopt;
  }
  std::string token(std::int32_t id) const override {
    return id == special ? "<s>" : std::string(1, static_cast<char>(id));
  }
  bool is_special(std::int32_t id) const override { return id == special; }
  std::string decode(const std::int32_t* ids, std::int64_t count, bool) const override {
    std::string text;
    for (std::int64_t i = 0; i < count; ++i) text += token(ids[i]);
    return text;
  }
  std::unique_ptr<Stream> stream(bool) const override {
    throw std::logic_error("no test needs a stream of letters");
  }

 private:
  class Letters : public Encoder {
   public:
    void encode(std::string_view text, bool, std::vector<std::int32_t>& ids) override {
      const std::size_t at = first_not_utf8(std::string(text));
      for (const char letter : text.substr(0, at))
        ids.push_back(static_cast<unsigned char>(letter));
      require(at == text.size(), "byte ", at, " is not UTF-8");
    }
  };

  std::string name_ = "letters";
};

}  // namespace ostrakon::testing
