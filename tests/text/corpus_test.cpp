// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/text/sources/corpus.hpp>
#include <random>
#include <set>

#include "../support/scratch_folder.hpp"
#include "../support/trials.hpp"
#include "compressed.hpp"
#include "letter_tokenizer.hpp"

namespace ostrakon::texts {
namespace {

using testing::error_of;
using testing::LetterTokenizer;
using testing::ScratchFolder;
using testing::write_bytes;
using Json = nlohmann::json;

/// What a store holds, to compare it with another one.
struct Content {
  std::vector<std::vector<std::int32_t>> documents;
  std::vector<std::int64_t> text_bytes;
  std::int64_t ids = 0, all_text_bytes = 0, bad = 0, without_text = 0;

  bool operator==(const Content& other) const {
    return documents == other.documents && text_bytes == other.text_bytes && ids == other.ids &&
           all_text_bytes == other.all_text_bytes && bad == other.bad &&
           without_text == other.without_text;
  }
};

Content content_of(TokenStore& store) {
  Content content;
  bool is_open = false;
  store.read([&](const TokenStore::Document& document) {
    if (!is_open) content.documents.emplace_back();
    auto& ids = content.documents.back();
    ids.insert(ids.end(), document.ids, document.ids + document.count);
    is_open = !document.ends;
    if (document.ends) content.text_bytes.push_back(document.text_bytes);
  });
  const BuildState& state = store.state();
  content.ids = state.ids;
  content.all_text_bytes = state.text_bytes;
  content.bad = state.bad;
  content.without_text = state.without_text;
  return content;
}

class Corpus : public ::testing::Test {
 protected:
  Corpus() {
    settings_.read.portion_bytes = 1 << 12;
    settings_.encode.before = {LetterTokenizer::special};
    settings_.encode.after = {LetterTokenizer::special};
    store_.folder = folder_.file("store");
    store_.vocabulary = tokenizer_.vocabulary();
  }

  void add(const std::string& content, SourceKind kind) {
    const std::string path = folder_.file("source" + std::to_string(files_++));
    write_bytes(path, content);
    settings_.read.sources.push_back(Source::of(path, kind));
  }
  /// Files of all kinds with documents of 0 to 2000 letters.
  void add_many(int documents) {
    std::mt19937 generator(5);
    const auto letters = [&] {
      std::string text(generator() % 10 == 0 ? 0 : generator() % 2000, ' ');
      for (char& letter : text) letter = static_cast<char>('a' + generator() % 26);
      return text;
    };
    std::string lines, texts;
    for (int i = 0; i < documents; ++i) {
      lines += Json{{"id", i}, {"text", letters()}}.dump() + "\n";
      texts += letters() + "\n%\n";
      if (i % 50 == 0) lines += "{\"id\": 1}\n\n";
    }
    settings_.read.separator = "%";
    add(lines, SourceKind::json_lines);
    add(texts, SourceKind::text);
    add(testing::gzipped(lines), SourceKind::json_lines);
    add(testing::zstd_compressed(texts), SourceKind::text);
    settings_.most_bad = documents;
  }

  void encode(TokenStore& store) {
    encode_corpus(
        settings_, tokenizer_, store, [](const Progress&) {},
        [&](const std::string& bad) { bad_.push_back(bad); });
  }
  Content built() {
    bad_.clear();
    const auto store = TokenStore::begin(store_, what_);
    encode(*store);
    Content content = content_of(*store);
    store->remove();
    return content;
  }

  ScratchFolder folder_;
  int files_ = 0;
  LetterTokenizer tokenizer_;
  CorpusSettings settings_;
  TokenStore::Settings store_;
  Json what_ = {{"made", "of this"}};
  std::vector<std::string> bad_;
};

TEST_F(Corpus, DocumentsBecomeIdsInOrder) {
  add("{\"text\": \"a\\u00e4\"}\n{\"text\": \"\"}\n{\"text\": \"b<s>\"}", SourceKind::json_lines);
  add("c", SourceKind::text);
  const Content content = built();
  EXPECT_EQ(content.documents,
            (std::vector<std::vector<std::int32_t>>{
                {300, 'a', 0xc3, 0xa4, 300}, {300, 'b', '<', 's', '>', 300}, {300, 'c', 300}}));
  EXPECT_EQ(content.text_bytes, std::vector<std::int64_t>({3, 4, 1}));
  EXPECT_EQ(content.without_text, 1);
  EXPECT_FALSE(std::filesystem::exists(store_.folder));
}

TEST_F(Corpus, AnyNumberOfWorkersMakesTheSame) {
  add_many(400);
  const Content one = built();
  const std::vector<std::string> bad = bad_;
  EXPECT_EQ(bad.size(), 16u);
  EXPECT_HAS(bad[1], "source0', line 54: no field \"text\"; the record has \"id\"");
  EXPECT_GT(one.documents.size(), 1200u);
  for (const int workers : {2, 5}) {
    settings_.workers = workers;
    EXPECT_EQ(built(), one) << workers;
    EXPECT_EQ(bad_, bad) << workers;
  }
  settings_.read.whole_documents = false;
  EXPECT_EQ(built(), one);
}

TEST_F(Corpus, LongDocumentsInStretches) {
  const std::string large(2'000'000, 'x');
  add(large, SourceKind::text);
  add("y", SourceKind::text);
  const Content whole = built();
  ASSERT_EQ(whole.documents.size(), 2u);
  EXPECT_EQ(whole.documents[0].size(), large.size() + 2);
  EXPECT_EQ(whole.text_bytes, std::vector<std::int64_t>({2'000'000, 1}));
  settings_.read.whole_documents = false;
  settings_.workers = 3;
  EXPECT_EQ(built(), whole);
}

TEST_F(Corpus, BadRecordsStopTheBuildBeyondTheirNumber) {
  add("{\"text\": \"a\"}\n{\"text\": 1}\n{\"text\": \"b\"}\n{\"text\"\n{\"text\": \"c\"}",
      SourceKind::json_lines);
  settings_.workers = 2;
  EXPECT_HAS(error_of([&] { built(); }),
             "line 2: field \"text\" is a number; expected a string. --skip-bad N leaves out");
  EXPECT_FALSE(std::filesystem::exists(store_.folder));
  settings_.most_bad = 1;
  EXPECT_HAS(error_of([&] { built(); }), "line 4: column ");
  EXPECT_HAS(error_of([&] { built(); }), "It is one more than --skip-bad 1 leaves out");
  settings_.most_bad = 2;
  EXPECT_EQ(built().documents.size(), 3u);
  EXPECT_EQ(bad_.size(), 2u);
}

TEST_F(Corpus, ABuildThatIsEndedAfterAnyPortionGoesOn) {
  add_many(30);
  add(std::string(900'000, 'x'), SourceKind::text);
  add("y", SourceKind::text);
  settings_.commit_seconds = 0.0;
  settings_.workers = 2;
  for (const bool is_whole : {true, false}) {
    settings_.read.whole_documents = is_whole;
    const Content expected = built();
    int portions = 0;
    for (bool is_ended = true; is_ended;) {
      ++portions;
      is_ended = false;
      {
        const auto store = TokenStore::begin(store_, what_);
        int seen = 0;
        try {
          encode_corpus(
              settings_, tokenizer_, *store,
              [&](const Progress&) { require(++seen < portions, "enough"); },
              [](const std::string&) {});
        } catch (const Error&) {
          is_ended = true;
        }
      }
      const auto store = TokenStore::resume(store_, what_);
      EXPECT_EQ(store->state().is_complete, !is_ended);
      if (is_ended) encode(*store);
      EXPECT_EQ(content_of(*store), expected) << portions;
      store->remove();
    }
    EXPECT_GT(portions, 5);
  }
}

TEST_F(Corpus, AResumedStoreIsCutAtTheSameByte) {
  add("abcdefgh", SourceKind::text);
  settings_.commit_seconds = 0.0;
  {
    const auto store = TokenStore::begin(store_, what_);
    encode(*store);
    store->begin_again(3);
    settings_.read.cut = store->state().cut;
    encode(*store);
  }
  const auto store = TokenStore::resume(store_, what_);
  EXPECT_TRUE(store->state().is_complete);
  EXPECT_EQ(store->state().cut, 3);
  EXPECT_EQ(content_of(*store).documents,
            (std::vector<std::vector<std::int32_t>>{{300, 'a', 'b', 'c', 300},
                                                    {300, 'd', 'e', 'f', 'g', 'h', 300}}));
}

/// Builds in a process of its own, which commits after each portion; returns whether it ended well.
template <class Work>
bool in_process(const Work& work, int microseconds) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  ::usleep(static_cast<useconds_t>(microseconds));
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFEXITED(status);
}

TEST_F(Corpus, ABuildThatIsKilledGoesOn) {
  add_many(150);
  add(std::string(400'000, 'x'), SourceKind::text);
  const Content expected = built();
  settings_.commit_seconds = 0.0;
  std::mt19937 generator(7);
  int kills = 0;
  const int rounds = tests::trials(24);
  for (int round = 0; round < rounds; ++round) {
    settings_.workers = 1 + round % 3;
    settings_.read.whole_documents = round % 2 == 0;
    const auto go_on = [&] {
      const auto store = TokenStore::has_commits(store_.folder) ? TokenStore::resume(store_, what_)
                                                                : TokenStore::begin(store_, what_);
      if (!store->state().is_complete) encode(*store);
    };
    // Later ones have more time, so that a busy machine gets to the end, too.
    for (unsigned most = 1'000; !in_process(go_on, static_cast<int>(generator() % most));
         most += most / 4)
      ++kills;
    const auto store = TokenStore::resume(store_, what_);
    EXPECT_TRUE(store->state().is_complete);
    EXPECT_EQ(content_of(*store), expected) << round;
    store->remove();
  }
  EXPECT_GT(kills, rounds / 2);
}

TEST_F(Corpus, AStoreOfSomethingElseIsNotContinued) {
  add_many(50);
  settings_.commit_seconds = 0.0;
  what_ = {{"tokenizer", "letters"}, {"sources", {{{"path", "a"}, {"bytes", 7}}, {{"path", "b"}}}}};
  {
    const auto store = TokenStore::begin(store_, what_);
    EXPECT_HAS(error_of([&] { TokenStore::begin(store_, what_); }),
               "is being written by another process");
    encode(*store);
  }
  ASSERT_TRUE(TokenStore::has_commits(store_.folder));
  const auto refusal = [&](const Json& what) {
    return error_of([&] { TokenStore::resume(store_, what); });
  };
  Json other = what_;
  other["tokenizer"] = "words";
  EXPECT_HAS(refusal(other), "was begun with tokenizer \"letters\", not \"words\"");
  other = what_;
  other["sources"][0]["bytes"] = 8;
  EXPECT_HAS(refusal(other), "source {\"bytes\":7,\"path\":\"a\"}, which is now {\"bytes\":8");
  other = what_;
  other["sources"].push_back({{"path", "c"}});
  other["begin"] = 3;
  EXPECT_HAS(refusal(other), "was begun with other sources, without \"c\"");
  other["sources"] = {what_["sources"][1], what_["sources"][0]};
  EXPECT_HAS(refusal(other), "another order: number 1 was \"a\", and is now \"b\"");
  other["sources"] = {what_["sources"][1]};
  EXPECT_HAS(refusal(other), "with source \"a\", which is missing from the list");
  other["tokenizer"] = "words";
  EXPECT_HAS(refusal(other), "was begun with tokenizer");
  EXPECT_EQ(refusal(what_), "no error");

  const std::string ids = store_.folder + "/ids";
  std::string bytes = testing::read_bytes(ids);
  bytes[1000] = static_cast<char>(bytes[1000] ^ 1);
  write_bytes(ids, bytes);
  EXPECT_HAS(refusal(what_), "ids' is damaged: its checksum");
  write_bytes(ids, bytes.substr(1));
  EXPECT_HAS(refusal(what_), "bytes; expected at least");
  write_bytes(store_.folder + "/journal", what_.dump() + "\n{\"state\": 3}\n");
  EXPECT_HAS(refusal(what_), "journal' is damaged");
}

TEST(DocumentSplit, EachDocumentIsOnOneSide) {
  const auto held_out = [](const DocumentSplit& split, std::int64_t documents) {
    std::set<std::int64_t> found;
    for (std::int64_t i = 0; i < documents; ++i)
      if (split.is_validation(i)) found.insert(i);
    return found;
  };
  const auto some = held_out({1, 0.05, 4000}, 4000);
  EXPECT_NEAR(static_cast<double>(some.size()), 200.0, 60.0);
  EXPECT_NE(held_out({2, 0.05, 4000}, 4000), some);
  EXPECT_EQ(held_out({1, 0.0, 4000}, 4000).size(), 0u);
  for (int documents = 2; documents < 6; ++documents)
    for (const double fraction : {1e-9, 0.05, 0.5, 0.95, 0.999999})
      for (std::uint64_t seed = 1; seed < 6; ++seed) {
        const auto found = held_out({seed, fraction, documents}, documents).size();
        EXPECT_GE(found, 1u);
        EXPECT_LT(found, static_cast<std::size_t>(documents));
      }
  EXPECT_EQ(error_of([] { DocumentSplit(1, 1.0, 9); }),
            "a validation fraction of 1; expected at least 0 and less than 1");
}

}  // namespace
}  // namespace ostrakon::texts
