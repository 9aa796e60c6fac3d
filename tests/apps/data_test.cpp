// SPDX-License-Identifier: Apache-2.0

// ostrakon-data as a user starts it, with tokens of other tokenizers.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"

namespace ostrakon::testing {
namespace {

using Texts = std::vector<std::string>;

/// Little-endian, 16 bits each.
std::string raw16(const std::vector<std::uint32_t>& tokens) {
  std::string bytes;
  for (const std::uint32_t token : tokens) {
    bytes += static_cast<char>(token & 255);
    bytes += static_cast<char>(token >> 8);
  }
  return bytes;
}

/// Three documents of a vocabulary of 300 ids, of which 299 ends them.
class DataProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    write_bytes(path("ids"), raw16({1, 2, 299, 3, 299, 298, 299}));
    std::string lengths;
    for (int id = 0; id < 299; ++id) lengths += std::to_string(id % 7) + "\n";
    write_bytes(path("lengths"), lengths + "0\n");
  }

  std::string path(const std::string& name) const { return folder_.file(name); }

  Outcome data(Texts arguments) const {
    Command command;
    command.arguments = {OSTRAKON_APPS_DIR "/ostrakon-data"};
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    command.folder = path("");
    return run_command(command);
  }
  std::string must(const Texts& arguments) const {
    const Outcome outcome = data(arguments);
    EXPECT_EQ(outcome.status, 0) << arguments[0] << "\n" << outcome.err;
    return outcome.out;
  }
  void import(const Texts& options, const std::string& output = "ids.h5",
              const std::string& raw = "ids") const {
    Texts arguments = {"import", "--vocabulary", "300",  "--end-of-text",
                       "299",    "--output",     output, raw};
    arguments.insert(arguments.end(), options.begin(), options.end());
    must(arguments);
  }
  void expect_refused(const Texts& arguments, const std::string& message) const {
    const Outcome outcome = data(arguments);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.err.rfind("ostrakon-data: error: ", 0), 0U) << outcome.err;
    EXPECT_HAS(outcome.err, message);
  }
  void expect_import_refused(Texts options, const std::string& message) const {
    options.insert(options.begin(), {"import", "--vocabulary", "300", "--output", "bad.h5", "ids"});
    expect_refused(options, message);
    EXPECT_FALSE(std::filesystem::exists(path("bad.h5")));
  }

  ScratchFolder folder_;
};

TEST_F(DataProgram, RawTokensAreImported) {
  import({});
  EXPECT_HAS(must({"verify", "ids.h5"}), "ids.h5 is sound: 7 tokens in 3 documents");
  const std::string info = must({"info", "ids.h5"});
  EXPECT_HAS(info, "tokenizer     external\n");
  EXPECT_HAS(info, "of unknown length: it has no byte_count\n");
}

TEST_F(DataProgram, SharesOfMixturesArePrinted) {
  import({});
  import({}, "more.h5");
  const std::string info = must({"info", "3 ids.h5; 1 more.h5; 0 ids.h5"});
  EXPECT_HAS(info,
             "mixture\n"
             "  ids.h5: 75 % of the samples, an epoch of it in about 9 tokens of all\n"
             "  more.h5: 25 % of the samples, an epoch of it in about 28 tokens of all\n"
             "  ids.h5: 0 % of the samples\n");
  EXPECT_HAS(info, "more.h5\n  format ");
  EXPECT_EQ(must({"info", "ids.h5", "more.h5"}).find("mixture"), std::string::npos);
  expect_refused({"info", "ids.h5; 1 none.h5"}, "token file 'none.h5' does not exist");
}

TEST_F(DataProgram, OutputsThatAreThereAreReplacedOnlyWhereAsked) {
  write_bytes(path("text.txt"), "Hi\n%\nyou\n");
  const Texts build = {"build", "--output", "x", "--separator", "%", "text.txt"};
  for (const std::string there : {"x-validation.h5", "x-train.h5"}) {
    write_bytes(path(there), "mine");
    expect_refused(build,
                   "'" + there + "' is there already; expected a new name, or --overwrite to");
    EXPECT_EQ(read_bytes(path(there)), "mine");
  }
  Texts again = build;
  again.push_back("--overwrite");
  must(again);
  must({"verify", "x-train.h5"});
  must({"verify", "x-validation.h5"});

  const Texts import_over = {"import", "--vocabulary", "300", "--output", "x-train.h5", "ids"};
  const std::string before = read_bytes(path("x-train.h5"));
  expect_refused(import_over, "'x-train.h5' is there already");
  EXPECT_EQ(read_bytes(path("x-train.h5")), before);
  import({"--overwrite"}, "x-train.h5");
  EXPECT_EQ(must({"show", "x-train.h5"}), "1 2 299\n");
}

TEST_F(DataProgram, BytesOfTheTextMayBeGiven) {
  import({"--bytes", "21"});
  const std::string info = must({"info", "ids.h5"});
  EXPECT_HAS(info, "text          21 bytes, 3 a token\n");
  must({"verify", "ids.h5"});
}

TEST_F(DataProgram, BytesOfEachTokenMayBeGiven) {
  import({"--token-bytes", "lengths"});
  const std::string info = must({"info", "ids.h5"});  // 1 + 2 + 3 + 298 % 7
  EXPECT_HAS(info, "text          10 bytes, ");
}

TEST_F(DataProgram, BytesOfManyTokensAreCounted) {
  // Several blocks of reading, one long document and many short ones.
  std::mt19937 generator(1);
  std::vector<std::uint32_t> tokens(1'300'000);
  std::int64_t expected = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = generator() % (i < 700'000 ? 299 : 300);
    if (tokens[i] != 299) expected += tokens[i] % 7;
  }
  write_bytes(path("many"), raw16(tokens));
  import({"--token-bytes", "lengths"}, "many.h5", "many");
  std::string digits = std::to_string(expected);
  for (std::size_t at = digits.size() - 3; at < digits.size() && at > 0; at -= 3)
    digits.insert(at, ",");
  const std::string info = must({"info", "many.h5"});
  EXPECT_HAS(info, "text          " + digits + " bytes, ") << digits << "\n" << info;
}

TEST_F(DataProgram, BytesThatCantBeAreRefused) {
  expect_import_refused({"--bytes", "0"}, "--bytes 0: expected an integer >= 1");
  expect_import_refused({"--bytes", "-3"}, "--bytes -3: expected an integer >= 1");
  expect_import_refused({"--bytes", "4k"}, "--bytes 4k: expected");
  expect_import_refused({"--bytes", "9", "--token-bytes", "lengths"},
                        "--bytes and --token-bytes are both given");
  const auto with = [&](const std::string& lengths, const std::string& message) {
    write_bytes(path("other"), lengths);
    expect_import_refused({"--token-bytes", "other"}, message);
  };
  const std::string good = read_bytes(path("lengths"));
  with("", "has 0 numbers; expected one for each id of the vocabulary, 300");
  with(good.substr(2), "has 299 numbers");
  with("1 " + good, "has more than 300 numbers");
  with("1 x 2", "the number of bytes of token 1 is 'x'");
  with("1 -1 2", "the number of bytes of token 1 is '-1'");
  with("1 2.5", "'2.5'; expected a whole number");
  std::string zeros;
  for (int id = 0; id < 300; ++id) zeros += "0 ";
  with(zeros, "all tokens of 'ids' have 0 bytes");
  expect_import_refused({"--token-bytes", "none"}, "--token-bytes 'none' does not exist");
  expect_import_refused({"--token-bytes", "."}, "'.' is a folder");
}

TEST_F(DataProgram, IdsAreShownWhereTokensAreNoBytes) {
  import({});
  EXPECT_EQ(must({"show", "ids.h5"}), "1 2 299\n");
  EXPECT_EQ(must({"show", "ids.h5", "--document", "1"}), "3 299\n");
  EXPECT_EQ(must({"show", "ids.h5", "--begin", "1", "--count", "4"}), "2 299\n3 299\n");
  EXPECT_EQ(must({"show", "ids.h5", "--begin", "4", "--count", "100"}), "299\n298 299\n");
  EXPECT_EQ(must({"show", "ids.h5", "--count", "0"}), "");
  EXPECT_EQ(must({"show", "ids.h5", "--ids"}), "1 2 299\n");
  expect_refused({"show", "ids.h5", "--document", "3"}, "has no document 3");
}

TEST_F(DataProgram, TextIsShownAsIdsWhereAsked) {
  write_bytes(path("text.txt"), "Hi\n%\nyou\n");
  must({"build", "--output", "text", "--validation-fraction", "0", "--separator", "%", "text.txt"});
  EXPECT_EQ(must({"show", "text-train.h5", "--begin", "0", "--count", "9", "--ids"}),
            "72 105 10 256\n121 111 117 10 256\n");
  EXPECT_EQ(must({"show", "text-train.h5"}), "Hi\n\n");
}

TEST_F(DataProgram, LongDocumentsAreALine) {
  std::vector<std::uint32_t> tokens(200'000);
  std::string expected;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint32_t>(i * i % 299);
    expected += (i == 0 ? "" : " ") + std::to_string(tokens[i]);
  }
  write_bytes(path("long"), raw16(tokens));
  import({}, "long.h5", "long");
  EXPECT_EQ(must({"show", "long.h5"}), expected + "\n");
}

TEST_F(DataProgram, WhatDocumentsAreMadeOfIsChosen) {
  write_bytes(path("lines.jsonl"),
              "{\"text\": \"Hi\", \"more\": {\"text\": \"yo\"}}\n"
              "{\"text\": 1}\n{\"text\": \"you\"}\n");
  const auto build = [](Texts options) {
    Texts arguments = {"build", "--overwrite", "--output", "x", "--validation-fraction", "0"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  };
  expect_refused(build({"--field", "text", "lines.jsonl"}),
                 "'lines.jsonl', line 2: field \"text\" is a number; expected a string");
  const Outcome outcome = data(build({"--field", "text", "--skip-bad", "1", "lines.jsonl"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_HAS(outcome.err, "warning: left out: 'lines.jsonl', line 2: ");
  EXPECT_HAS(outcome.out, "left out 1 bad record\n");
  EXPECT_EQ(must({"show", "x-train.h5", "--ids", "--begin", "0"}), "72 105 256\n121 111 117 256\n");
  must(build({"--field", "more.text", "--skip-bad", "2", "--end", "none", "lines.jsonl"}));
  EXPECT_EQ(must({"show", "x-train.h5", "--ids"}), "121 111\n");

  write_bytes(path("text.txt"), "Hi\n");
  const struct {
    Texts options;
    const char* message;
  } refused[] = {
      {{"--field", "text", "text.txt"}, "'text.txt' has no JSON object on its first line"},
      {{"--end", "10", "text.txt"}, "--end \"10\": is a byte of text; expected none or 256"},
      {{"--begin", "<s>", "text.txt"}, "--begin \"<s>\": expected none, a token of the tokenizer"},
      {{"--tokenizer", "none/there", "text.txt"}, "'none/there' is no tokenizer"},
      {{"--tokenizer", "ids", "text.txt"}, "'ids' is no tokenizer"},
      {{"--resume", "-"}, "no text found"},
      {{"-", "-"}, "the standard input, -, is named twice"},
  };
  for (const auto& entry : refused) expect_refused(build(entry.options), entry.message);
  expect_refused({"build", "--output", "y", "-"},
                 "the standard input is one document, which can't be split into training and");
  expect_refused({"show", "x-train.h5", "--tokenizer", "ids"}, "'ids' is no tokenizer");
}

TEST_F(DataProgram, OfChatsWhatTheAssistantWroteCounts) {
  write_bytes(path("template"),
              "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
              "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  const std::string turns = R"([{"role": "user", "content": "Hi"}, {"role": "assistant", )";
  write_bytes(path("chats.jsonl"), "{\"turns\": " + turns + "\"content\": \"yo\"}]}\n" +
                                       R"({"prompt": "1+1=", "completion": "2"})");
  const Texts build = {"build",   "--output", "x",          "--validation-fraction", "0", "--chat",
                       "--field", "turns",    "chats.jsonl"};
  const Outcome outcome = data(build);
  EXPECT_HAS(outcome.err,
             "'chats.jsonl', line 1: the record has messages, but the tokenizer byte "
             "has no chat template; expected --chat-template FILE");
  EXPECT_LACKS(outcome.err, "--skip-bad");
  Texts with_template = build;
  with_template.insert(with_template.end(), {"--chat-template", "template"});
  must(with_template);
  EXPECT_EQ(must({"show", "x-train.h5", "--ids"}), "72 105 121 111\n");
  EXPECT_EQ(must({"show", "x-train.h5", "--counts"}), "0 0 1 1\n");
  EXPECT_EQ(must({"show", "x-train.h5", "--document", "1", "--counts"}), "0 0 0 0 1 1\n");
  EXPECT_EQ(must({"show", "x-train.h5", "--counts", "--tokenizer", "byte", "--begin", "0"}),
            "Hi\u27E6yo\u27E71+1=\u27E62\u27E7\n");
  EXPECT_HAS(must({"info", "x-train.h5"}), "lengths       mean 5 tokens, median 6, longest 6\n");
  EXPECT_HAS(must({"verify", "x-train.h5"}), "of which 4 count in the loss");
  EXPECT_HAS(must({"info", "x-train.h5"}),
             "end with      token 256: never in 1, once in 1 of 2 doc");
  expect_refused({"build", "--output", "y", "--chat-template", "template", "ids"}, "--chat");
}

TEST_F(DataProgram, PairsOfAnswersAreTwoDocumentsEach) {
  write_bytes(path("pairs.jsonl"), R"({"prompt": "1+1=", "chosen": "2", "rejected": "11"})"
                                   "\n"
                                   R"({"prompt": "Hi", "chosen": " you", "rejected": "!"})");
  must({"build", "--output", "x", "--validation-fraction", "0", "--pairs", "pairs.jsonl"});
  EXPECT_HAS(must({"info", "x-train.h5"}), "documents     4, 2 pairs of answers\n");
  const std::string shown[] = {"1+1=\u27E62\u27E7", "1+1=\u27E611\u27E7", "Hi\u27E6 you\u27E7",
                               "Hi\u27E6!\u27E7"};
  for (int d = 0; d < 4; ++d)
    EXPECT_EQ(must({"show", "x-train.h5", "--counts", "--tokenizer", "byte", "--document",
                    std::to_string(d)}),
              shown[d] + "\n");
  EXPECT_EQ(must({"show", "x-train.h5", "--document", "1", "--counts"}), "0 0 0 0 1 1 1\n");
  // Both answers of a pair are held out, or neither.
  const Outcome split =
      data({"build", "--output", "y", "--validation-fraction", "0.5", "--pairs", "pairs.jsonl"});
  ASSERT_EQ(split.status, 0) << split.err;
  EXPECT_EQ(split.err, "") << "a warning of too few tokens would be wrong: a pair is a sample";
  EXPECT_HAS(split.out, " --set training.objective=dpo\n");
  for (const char* const file : {"y-train.h5", "y-validation.h5"})
    EXPECT_HAS(must({"info", file}), "documents     2, 1 pairs of answers\n");
  must({"build", "--output", "z", "--validation-fraction", "0", "--pairs", "--longest", "9",
        "--skip-bad", "1", "pairs.jsonl"});
  EXPECT_HAS(must({"info", "z-train.h5"}), "documents     2, 1 pairs of answers\n");
  expect_refused({"build", "--output", "w", "--pairs", "--chat", "pairs.jsonl"}, "--pairs");
  expect_refused({"build", "--output", "w", "--longest", "9", "pairs.jsonl"}, "--pairs");
}

TEST_F(DataProgram, TextOfATokenizerIsShownWithIt) {
  write_bytes(path("text.txt"), "to be or not to be\n");
  must({"train-tokenizer", "--vocabulary", "260", "--output", "mine/", "text.txt"});
  EXPECT_HAS(must({"build", "--tokenizer", "mine/", "--output", "x", "--validation-fraction", "0",
                   "text.txt"}),
             "ostrakon-data show --tokenizer mine/ x-train.h5\n");
  const Outcome shown = data({"show", "x-train.h5"});
  EXPECT_HAS(shown.err, "note: these are ids; --tokenizer FOLDER, that of tokenizer.json-");
  EXPECT_EQ(data({"show", "x-train.h5", "--ids"}).err, "");
  const Outcome text = data({"show", "x-train.h5", "--tokenizer", "mine/"});
  EXPECT_EQ(text.out, "to be or not to be\n<|endoftext|>\n");
  EXPECT_EQ(text.err, "");
}

TEST_F(DataProgram, ABuildThatWasNotFinishedIsNotLost) {
  write_bytes(path("text.txt"), "Hi\n%\nyou\n");
  std::filesystem::create_directory(path("x.partial"));
  write_bytes(path("x.partial/journal"), "{}\n{\"state\": {}}\n");
  const Texts build = {"build", "--output", "x", "--separator", "%", "text.txt"};
  expect_refused(build, "'x.partial' is a build that was not finished; expected --resume");
  Texts resumed = build;
  resumed.push_back("--resume");
  expect_refused(resumed, "'x.partial' was begun with ");
  EXPECT_TRUE(std::filesystem::exists(path("x.partial/journal")));
  Texts anew = build;
  anew.push_back("--overwrite");
  EXPECT_HAS(data(anew).err, "x-validation.h5' has ");
  EXPECT_FALSE(std::filesystem::exists(path("x.partial")));
  // Without a commit there is nothing to lose.
  std::filesystem::create_directory(path("x.partial"));
  write_bytes(path("x.partial/journal"), "{}\n{\"sta");
  must(anew);
  resumed.push_back("--overwrite");
  must(resumed);
}

TEST_F(DataProgram, IdsGetTheNameOfTheirTokenizer) {
  std::filesystem::create_directory(path("gpt2"));
  std::filesystem::create_directory(path("copy"));
  std::filesystem::create_directory(path("bare"));
  write_bytes(path("gpt2/tokenizer.json"), "{}");
  write_bytes(path("copy/tokenizer.json"), "{}");
  write_bytes(path("other.json"), "{ }");
  const auto name_of = [&](const std::string& tokenizer) {
    import({"--overwrite", "--tokenizer", tokenizer});
    const std::string info = must({"info", "ids.h5"}), label = "tokenizer     ";
    const std::size_t begin = info.find(label) + label.size();
    return info.substr(begin, info.find('\n', begin) - begin);
  };
  EXPECT_EQ(name_of("mine"), "mine");
  EXPECT_EQ(name_of("openai-community/gpt2"), "openai-community/gpt2");
  EXPECT_EQ(name_of("external"), "external");
  EXPECT_EQ(name_of("other.json"), "other.json");
  const std::string named = name_of("gpt2");
  EXPECT_EQ(named.rfind("tokenizer.json-", 0), 0U) << named;
  EXPECT_EQ(named.size(), std::string("tokenizer.json-").size() + 16);
  for (const char* same : {"gpt2/", "gpt2/tokenizer.json", "copy"}) EXPECT_EQ(name_of(same), named);
  write_bytes(path("copy/tokenizer.json"), "{ }");
  EXPECT_NE(name_of("copy"), named);

  expect_import_refused({"--tokenizer", "bare"},
                        "--tokenizer bare: expected a folder with tokenizer.json");
  expect_import_refused({"--tokenizer", ""}, "--tokenizer '': expected a name");
  for (const std::string& taken : Texts{"byte", "synthetic"})
    expect_import_refused({"--tokenizer", taken},
                          "--tokenizer " + taken + ": expected the name of another tokenizer");
}

TEST_F(DataProgram, WhatIsNoPlainTextIsSaid) {
  const std::string words = "some words\n";
  write_bytes(path("text.txt"), words);
  write_bytes(path("lines.jsonl"), "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  write_bytes(path("marked.txt"), "\xEF\xBB\xBF" + words);
  write_bytes(path("text.gz"), std::string("\x1f\x8b\x08\0\1\2\3\4\0\3", 10) + words);
  write_bytes(path("text.xz"), std::string("\xfd"
                                           "7zXZ\0",
                                           6) +
                                   words);
  std::string wide = "\xff\xfe";
  for (const char letter : words) wide += {letter, '\0'};
  write_bytes(path("wide.txt"), wide);
  write_bytes(path("wide-unmarked.txt"), wide.substr(2));
  write_bytes(path("numbers"), std::string("\0\1\2\3", 4));
  const auto built = [&](const Texts& files) {
    Texts arguments = {"build", "--overwrite", "--output", "x", "--validation-fraction", "0"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    return data(arguments);
  };
  const auto expect_warned = [&](const Texts& files, const std::string& warning) {
    const Outcome outcome = built(files);
    EXPECT_EQ(outcome.status, 0) << files[0];
    EXPECT_EQ(outcome.err.rfind("ostrakon-data: warning: " + warning, 0), 0U) << outcome.err;
  };
  EXPECT_EQ(built({"text.txt", "numbers"}).err, "");
  expect_warned({"lines.jsonl"}, "1 file of JSON lines, lines.jsonl: ");
  expect_warned({"marked.txt"}, "a byte-order mark (EF BB BF) begins 1 file, marked.txt: ");
  for (const std::string wide_file : {"wide.txt", "wide-unmarked.txt"})
    expect_warned({"text.txt", wide_file},
                  "'" + wide_file + "' is text in UTF-16, and was skipped");

  const auto expect_no_text = [&](const Texts& files, const std::string& message) {
    std::filesystem::remove(path("x-train.h5"));
    const Outcome outcome = built(files);
    EXPECT_EQ(outcome.status, 1) << files[0];
    EXPECT_HAS(outcome.err, message);
    EXPECT_FALSE(std::filesystem::exists(path("x-train.h5"))) << files[0];
  };
  expect_warned({"text.txt", "text.xz"}, "'text.xz' is compressed by xz, and was skipped; ");
  expect_no_text({"text.xz"}, "no text files among what was named: 'text.xz' is compressed by xz");
  expect_no_text({"text.gz"}, "'text.gz': its gzip data is damaged: ");
  expect_no_text({"wide.txt"}, "convert it first: iconv -f UTF-16 -t UTF-8");
  expect_no_text({"numbers"}, "no text files among what was named\n");
  write_bytes(path("x.parquet"), std::string("PAR1\x15\0PAR1", 10));
  expect_no_text({"--field", "text", "x.parquet"}, "Parquet file");  // with Arrow damaged

  std::filesystem::create_directory(path("model"));
  write_bytes(path("model/config.json"), "{\"model_type\": \"gpt2\"}");
  write_bytes(path("model/merges.txt"), words);
  write_bytes(path("model/model.safetensors"), std::string("\2\0\0\0\0\0\0\0{}", 10));
  for (const Texts& files :
       {Texts{"model"}, Texts{"text.txt", "model/"},
        Texts{"model/config.json", "model/merges.txt", "model/model.safetensors"}})
    expect_no_text(files, "' holds a model (config.json and its weights); expected text");
  std::filesystem::create_directory(path("all"));
  std::filesystem::rename(path("model"), path("all/model"));
  write_bytes(path("all/text.txt"), words);
  expect_warned({"all"}, "'all/model' holds a model; ");
}

TEST_F(DataProgram, ValidationReportsBitsPerByteOfImportedTokens) {
  std::mt19937 generator(2);
  std::vector<std::uint32_t> tokens(3000);
  for (std::uint32_t& token : tokens) token = generator() % 300;
  write_bytes(path("random"), raw16(tokens));
  import({}, "train.h5", "random");
  import({"--bytes", "13500"}, "validation.h5", "random");  // 4.5 a token
  write_bytes(path("deck.yaml"), R"(ostrakon:
  model: {layers: 1, width: 32, heads: 2, vocabulary: 300}
  data: {path: train.h5, validation_path: validation.h5}
  training: {steps: 2, global_batch_size: 2, micro_batch_size: 2, sequence_length: 24, validate_every: 2}
  output: {directory: run}
)");
  const Outcome outcome = run_command(program("ostrakon-train", 1, {"deck.yaml"}, path("")));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::istringstream rows(read_bytes(path("run/metrics.jsonl")));
  int validations = 0;
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (!row.contains("validation_loss")) continue;
    ++validations;
    ASSERT_TRUE(row.contains("bits_per_byte")) << row;
    const double loss = row.at("validation_loss");
    EXPECT_NEAR(row.at("bits_per_byte").get<double>(), loss / std::log(2.0) / 4.5, 1e-12 * loss);
  }
  EXPECT_EQ(validations, 1);
}

}  // namespace
}  // namespace ostrakon::testing
