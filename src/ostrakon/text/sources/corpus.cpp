// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/sources/corpus.hpp>

#include <algorithm>
#include <atomic>
#include <limits>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/data/random_integer.hpp>
#include <ostrakon/text/sources/ordered_parallel.hpp>

namespace ostrakon::texts {

void encode_corpus(const CorpusSettings& settings, const Tokenizer& tokenizer, TokenStore& store,
                   const std::function<void(const Progress&)>& tell,
                   const std::function<void(const std::string&)>& tell_bad) {
  std::atomic<bool> is_stopped{false};
  RecordReader reader(settings.read, store.state().place, [&] { return is_stopped.load(); });
  std::vector<std::unique_ptr<DocumentEncoder>> encoders(
      static_cast<std::size_t>(settings.workers));
  OrderedParallel<Portion, EncodedPortion> line(
      settings.workers, [&](Portion& portion) { return reader.next(portion); },
      [&](int worker, Portion& portion) {
        auto& encoder = encoders[static_cast<std::size_t>(worker)];
        if (!encoder)
          encoder =
              std::make_unique<DocumentEncoder>(tokenizer, settings.read.sources, settings.encode);
        return encoder->encode(portion);
      },
      is_stopped);

  Stopwatch since_commit;
  std::int64_t text_bytes = 0;
  line.run([&](EncodedPortion& portion) {
    const auto bad = static_cast<std::int64_t>(portion.bad.size());
    const std::int64_t more = std::max<std::int64_t>(settings.most_bad - store.state().bad, 0);
    for (std::int64_t i = 0; i < std::min(bad, more); ++i)
      tell_bad(portion.bad[static_cast<std::size_t>(i)]);
    require(bad <= more, bad > more ? portion.bad[static_cast<std::size_t>(more)] : "",
            settings.most_bad == 0
                ? ". --skip-bad N leaves out up to N such records"
                : text(". It is one more than --skip-bad ", settings.most_bad, " leaves out"));
    store.note_bad(bad);
    store.append(portion);
    text_bytes += portion.text_bytes;
    if (since_commit.seconds() >= settings.commit_seconds) {
      store.commit();
      since_commit = Stopwatch();
    }
    tell({store.state(), portion.taken, text_bytes});
  });
  store.complete();
}

DocumentSplit::DocumentSplit(std::uint64_t seed, double fraction, std::int64_t documents)
    : key_(math::random_key(seed, "validation split")),
      validates_(fraction > 0.0),
      limit_(static_cast<std::uint64_t>(fraction * 0x1p64)) {
  require(fraction >= 0.0 && fraction < 1.0, "a validation fraction of ", fraction,
          "; expected at least 0 and less than 1");
  if (!validates_) return;
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max(), largest = 0;
  for (std::int64_t i = 0; i < documents; ++i) {
    smallest = std::min(smallest, hash(i));
    largest = std::max(largest, hash(i));
  }
  if (smallest >= limit_)
    limit_ = smallest + 1;
  else if (largest < limit_)
    limit_ = largest;
}

std::uint64_t DocumentSplit::hash(std::int64_t document) const {
  return data::random_integer(key_, static_cast<std::uint64_t>(document), 0);
}

bool DocumentSplit::is_validation(std::int64_t document) const {
  return validates_ && hash(document) < limit_;
}

}  // namespace ostrakon::texts
