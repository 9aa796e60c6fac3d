// SPDX-License-Identifier: Apache-2.0

// encode_strings TOKENIZER [special]: what Ostrakon makes of strings, for scripts that compare it
// with other programs. `special`: special tokens are found by their text. Standard input: for each
// string its number of bytes (32 bits, in this machine's order) and its bytes. Standard output: for
// each string the number of its ids (32 bits), the ids (32 bits each), and two texts, each as its
// number of bytes and its bytes: that of decode() without special tokens, and that of a stream with
// them.

#include <cstdint>
#include <iostream>
#include <ostrakon/text/tokenizer.hpp>

namespace {

void write_number(std::size_t number) {
  const auto value = static_cast<std::uint32_t>(number);
  std::cout.write(reinterpret_cast<const char*>(&value), sizeof value);
}

void write_text(const std::string& text) {
  write_number(text.size());
  std::cout.write(text.data(), static_cast<std::streamsize>(text.size()));
}

}  // namespace

int main(int argc, char** argv) try {
  const bool finds_special = argc == 3 && std::string(argv[2]) == "special";
  if (argc != 2 && !finds_special)
    throw std::invalid_argument("expected: encode_strings TOKENIZER [special]");
  const auto tokenizer = ostrakon::texts::open_tokenizer(argv[1]);
  const auto encoder = tokenizer->encoder();
  std::ios::sync_with_stdio(false);
  std::string text;
  std::vector<std::int32_t> ids;
  for (std::uint32_t size; std::cin.read(reinterpret_cast<char*>(&size), sizeof size);) {
    text.resize(size);
    std::cin.read(text.data(), size);
    ids.clear();
    encoder->encode(text, finds_special, ids);
    write_number(ids.size());
    std::cout.write(reinterpret_cast<const char*>(ids.data()),
                    static_cast<std::streamsize>(ids.size() * sizeof(std::int32_t)));
    write_text(tokenizer->decode(ids.data(), static_cast<std::int64_t>(ids.size()), true));
    const auto stream = tokenizer->stream(false);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += stream->next(id);
    write_text(streamed + stream->finish());
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "encode_strings: error: " << error.what() << "\n";
  return 1;
}
