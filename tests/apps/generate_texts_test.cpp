// SPDX-License-Identifier: Apache-2.0

// ostrakon-generate with several texts, with tokenizers, and with chats.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "generate_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
  return all;
}

TEST_F(Generate, TextsAreThoseOfEachAlone) {
  const Texts prompts = {"Ship 4", "", "Ship 97 has"};
  std::string expected, lines;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    expected += (i > 0 ? "----\n" : "") +
                generated(with(some_text, {"--prompt", prompts[i], "--samples", "2", "--batch=1"}));
    lines += (i == 1 ? Json{{"prompt", prompts[i]}} : Json(prompts[i])).dump() + "\n\n";
  }
  write_bytes(path("prompts"), lines);
  for (const char* batch : {"", "--batch=1", "--batch=4", "--batch=100"}) {
    Texts options = {"--prompts", "prompts", "--samples", "2"};
    if (*batch != '\0') options.emplace_back(batch);
    EXPECT_EQ(generated(with(some_text, options)), expected) << batch;
  }
  EXPECT_EQ(generated(with(some_text, {"--prompt=Ship 4", "--prompt=", "--prompt=Ship 97 has",
                                       "--samples", "2"})),
            expected);
  EXPECT_NE(generated(with(some_text, {"--prompt", "Ship 4", "--repetition-penalty", "1.5"})),
            generated(with(some_text, {"--prompt", "Ship 4"})));
  EXPECT_EQ(generated(with(some_text, {"--prompt", "Ship 4", "--min-p", "1"})),
            generated(with(some_text, {"--prompt", "Ship 4", "--temperature", "0"})));
  for (const char* dtype : {"bf16", "fp16"})
    EXPECT_EQ(generated(with(some_text, {"--prompt", "Ship 4", "--dtype", dtype})).substr(0, 6),
              "Ship 4");
  for (const auto& [content, message] : std::vector<std::pair<std::string, std::string>>{
           {"\n\n", "has no prompts"},
           {"\"a\"\n{\"text\": \"b\"}\n", "line 2: expected either `prompt` or `messages`"},
           {"{\"prompt\": 7}", "line 1: `prompt` is no string"},
           {"[\"a\"]", "line 1: expected a string, or an object"},
           {"{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}]}", "expected --chat"},
           {"Ship 4", "line 1 is not JSON (column 1: "},
           {"Ship 4", "in each line; --prompt-file takes plain text"}}) {
    write_bytes(path("bad-prompts"), content);
    expect_refused(with(some_text, {"--prompts", "bad-prompts"}), message);
  }
  expect_refused(with(some_text, {"--prompts", "prompts", "--prompt", "a"}), "are both given");
  expect_refused(with(some_text, {"--batch", "0"}), "--batch 0: expected an integer >= 1");
  expect_refused(with(some_text, {"--dtype", "fp8"}), "--dtype fp8: expected fp32, bf16 or fp16");
}

TEST_F(Generate, JsonSaysHowTextsEnd) {
  const Texts likely = {"llama", "--prompt", "Ship 4", "--top-k", "3", "--temperature", "0.5"};
  const std::string plain = generated(with(likely, {"--tokens", "60"}));
  const std::string text = plain.substr(6, plain.size() - 7);
  const std::size_t space = text.find(' ');
  ASSERT_NE(space, std::string::npos) << text;
  const auto described = [&](const Texts& options) {
    return json_lines(generated(with(with(likely, {"--json"}), options)));
  };
  const std::vector<Json> all = described({"--tokens", "60", "--samples", "3"});
  ASSERT_EQ(all.size(), 3U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["sample"], i);
    EXPECT_EQ(all[i]["prompt"], "Ship 4");
  }
  EXPECT_EQ(all[0]["text"], text);
  const std::string some = text.substr(3, 5);
  const Json stopped = described({"--tokens", "60", "--stop", some, "--stop=~"}).at(0);
  EXPECT_EQ(stopped["text"], text.substr(0, text.find(some)));
  EXPECT_EQ(stopped["ended_by"], "stop");
  EXPECT_EQ(generated(with(likely, {"--tokens", "60", "--stop", " "})),
            "Ship 4" + text.substr(0, space) + "\n");
  const Json few = described({"--tokens", "5", "--stop", "zz"}).at(0);
  EXPECT_EQ(few["text"], text.substr(0, 5));
  EXPECT_EQ(few["tokens"], 5);
  EXPECT_EQ(few["ended_by"], "tokens");
  const Json ids = json_lines(generated(
      {"llama", "--ids", "--json", "--prompt", "256 83", "--tokens", "2", "--ignore-end"}))[0];
  EXPECT_EQ(ids["prompt"], Json({256, 83}));
  EXPECT_EQ(ids["ids"].size(), 2U);
  // The token that comes next ends the text.
  const std::string next = ids["ids"][0].dump();
  const Json none = json_lines(generated({"llama", "--ids", "--json", "--prompt", "256 83",
                                          "--tokens", "2", "--end-of-text", next}))[0];
  EXPECT_EQ(none["ids"], Json::array());
  EXPECT_EQ(none["ended_by"], "end");
  expect_refused(with(some_text, {"--stop", ""}), "--stop '': expected a text");
}

/// The characters that stand for bytes in byte-level tokenizers: bytes that are printed are
/// themselves, the others follow from U+0100 on (Radford et al. 2019, GPT-2).
std::vector<std::string> characters_of_bytes() {
  const auto is_printed = [](int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  };
  std::vector<std::string> all;
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const int point = is_printed(byte) ? byte : 256 + others++;
    std::string utf8;
    if (point >= 128) {
      utf8 += static_cast<char>(0xC0 | point >> 6);
      utf8 += static_cast<char>(0x80 | (point & 63));
    } else {
      utf8 += static_cast<char>(point);
    }
    all.push_back(utf8);
  }
  return all;
}

/// The folder of a model whose tokens are those of bytes, by a tokenizer.json. Id 256 ends a text.
void write_folder_with_tokenizer(const std::string& folder, const std::string& tensors,
                                 const std::string& config) {
  Json vocabulary;
  const std::vector<std::string> characters = characters_of_bytes();
  for (int byte = 0; byte < 256; ++byte) vocabulary[characters[byte]] = byte;
  vocabulary["<|end|>"] = 256;
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens",
                           {{{"id", 256},
                             {"content", "<|end|>"},
                             {"single_word", false},
                             {"lstrip", false},
                             {"rstrip", false},
                             {"normalized", false},
                             {"special", true}}}},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level},
                          {"post_processor", nullptr},
                          {"decoder", byte_level},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"vocab", vocabulary},
                            {"merges", Json::array()}}}};
  write_bytes(folder + "/model.safetensors", tensors);
  write_bytes(folder + "/config.json", config);
  write_bytes(folder + "/tokenizer.json", tokenizer.dump());
  const char* const chats =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}Ship{% if tools %} {{ tools }}{% endif %}{% endif %}";
  write_bytes(folder + "/tokenizer_config.json",
              Json{{"eos_token", "<|end|>"}, {"chat_template", chats}}.dump());
}

/// Llama's folder with these tokens, which its weights do not name.
void make_folder_with_tokenizer(const std::string& folder, const std::string& llama) {
  if (fs::exists(folder)) return;
  fs::create_directories(folder);
  const std::string tensors = read_bytes(llama + ".safetensors");
  const std::size_t named = tensors.find("\"tokenizer\"");
  ASSERT_NE(named, std::string::npos);
  write_folder_with_tokenizer(folder, std::string(tensors).replace(named, 11, "\"made_with\""),
                              read_bytes(llama + "-hf/config.json"));
}

TEST_F(Generate, TextIsMadeOfTheTokensOfAFile) {
  make_folder_with_tokenizer(path("tokens"), path("llama"));
  // Likely tokens are ASCII: text of others is not that of bytes.
  const Texts likely = {"--tokens", "60", "--top-k", "3", "--temperature", "0.5"};
  const auto of = [&](const std::string& model, const std::string& prompt) {
    return generated(with(with({model}, likely), {"--prompt", prompt}));
  };
  // Its documents begin without a token, unlike those of bytes.
  const std::string ids =
      generated(with(with({"tokens", "--ids"}, likely),
                     {"--prompt", "83 104 105 112 32 52", "--end-of-text", "256"}));
  std::string expected;
  std::istringstream numbers(ids);
  for (int id = 0; numbers >> id;) expected += static_cast<char>(id);
  expected += "\n";
  EXPECT_EQ(of("tokens", "Ship 4"), expected);
  EXPECT_EQ(of("tokens", "<|end|>Ship 4"), "<|end|>" + of("llama", "Ship 4"))
      << "special tokens are found in a prompt";
  EXPECT_EQ(of("tokens", ""), of("llama", "")) << "a new document";
  EXPECT_EQ(generated(with(with({"tokens"}, likely),
                           {"--prompt", "Ship 4", "--tokenizer", "tokens/tokenizer.json"})),
            expected);
  must("ostrakon-checkpoint", {"import", "tokens", "of-tokens.h5"});
  EXPECT_EQ(of("of-tokens.h5", "Ship 4"), expected) << "the folder that weights came from";

  fs::create_directories(path("others"));
  write_bytes(path("others/tokenizer.json"),
              replaced(replaced(read_bytes(path("tokens/tokenizer.json")), "<|end|>", "<|END|>"),
                       "<|end|>", "<|END|>"));
  expect_refused({"tokens", "--tokenizer", "others"}, "; that of others is 'tokenizer.json-");
  must("ostrakon-checkpoint",
       {"import", "llama-hf", "unknown.h5", "--deck", "llama.yaml", "--tokenizer", "external"});
  const std::string many =
      replaced(replaced(read_bytes(path("tokens/tokenizer.json")), "\"id\":256", "\"id\":257"),
               "\"<|end|>\":256", "\"<|end|>\":257");
  write_bytes(path("others/tokenizer.json"), many);
  expect_refused({"unknown.h5", "--tokenizer", "others"},
                 "its vocabulary of 257 is less than that of the tokenizer 'tokenizer.json-");
}

TEST_F(Generate, ChatsAreAnswered) {
  make_folder_with_tokenizer(path("tokens"), path("llama"));
  const auto answer = [](const Texts& options) {
    return generated(with({"tokens", "--tokens", "40", "--seed", "3"}, options));
  };
  const std::string chat = "user: Which?<|end|>Ship";
  const std::string continued = answer({"--prompt", chat});
  ASSERT_EQ(continued.substr(0, chat.size()), chat);
  const std::string expected = continued.substr(chat.size());
  EXPECT_EQ(answer({"--chat", "--prompt", "Which?"}), expected) << "the answer alone";
  const Json user = {{"role", "user"}, {"content", "Which?"}};
  write_bytes(path("chat"), Json{user}.dump());
  EXPECT_EQ(answer({"--messages", "chat"}), expected);
  write_bytes(path("chat"), Json{{"messages", {user}}, {"tools", "one"}}.dump());
  EXPECT_EQ(answer({"--messages", "chat"}),
            answer({"--prompt", chat + " one"}).substr(chat.size() + 4));
  write_bytes(path("chats"), Json{{"messages", {user}}}.dump() + "\n\"Which?\"\n");
  const std::vector<Json> both = json_lines(answer({"--prompts", "chats", "--chat", "--json"}));
  ASSERT_EQ(both.size(), 2U);
  for (const Json& one : both) {
    EXPECT_EQ(one["messages"], Json({user}));
    EXPECT_EQ(one["text"].get<std::string>() + "\n", expected);
  }
  write_bytes(path("chats"), Json{{"prompt", {user}}, {"completion", {7}}}.dump());
  EXPECT_EQ(answer({"--prompts", "chats", "--chat"}), expected);
  const Json assistant = {{"role", "assistant"}, {"content", "All."}};
  write_bytes(path("chats"), Json{user, assistant}.dump() + "\n");
  const Outcome further =
      start("ostrakon-generate", {"tokens", "--messages", "chats", "--tokens", "4"});
  EXPECT_EQ(further.status, 0) << further.err;
  EXPECT_HAS(further.err, "note: the chat ends with a message of the assistant; another");
  write_bytes(path("chats"), Json{{"messages", {user}}}.dump() + "\n" + Json{user}.dump());
  expect_refused({"tokens", "--messages", "chats"}, "--prompts takes a chat in each line");
  write_bytes(path("chats"), "[\n{]");
  expect_refused({"tokens", "--messages", "chats"}, "'chats' is not JSON (line 2, column 2: ");
  write_bytes(path("latin"), "Sch\xf6n");
  const Texts latin = {"tokens", "--prompt-file", "latin"};
  for (const Texts& options : {latin, with(latin, {"--chat"})})
    expect_refused(options, "--prompt-file 'latin': byte 4 is not UTF-8, which the ");
  for (const char* bad : {"[]", "{}", "[7]", "{\"messages\": {}}"}) {
    write_bytes(path("chat"), bad);
    expect_refused({"tokens", "--messages", "chat"}, "--messages 'chat': ");
  }
  expect_refused({"tokens", "--chat"}, "--chat without a prompt");
  expect_refused({"llama", "--chat", "--prompt", "a"}, "is byte, which has no chat template");
  expect_refused({"tokens", "--chat", "--ids", "--prompt", "1"}, "are both given");
}

}  // namespace
}  // namespace ostrakon::testing
