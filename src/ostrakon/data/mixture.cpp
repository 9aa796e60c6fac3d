// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/mixture.hpp>

#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/data/mixture_order.hpp>
#include <string>
#include <utility>

namespace ostrakon::data {
namespace {

std::vector<double> weights_of(const std::vector<MixtureSource>& sources) {
  std::vector<double> weights;
  for (const MixtureSource& source : sources) weights.push_back(source.file.weight);
  return weights;
}

std::string vocabulary_of(const MixtureSource& source) {
  for (const Fact& fact : source.data->identity())
    if (fact.name == "vocabulary") return fact.value;
  return "";
}

class Mixture : public Dataset {
 public:
  Mixture(std::vector<MixtureSource> sources, std::uint64_t seed)
      : Dataset(sources[0].data->length()),
        order_(seed, weights_of(sources)),
        sources_(std::move(sources)) {}

  void read(std::uint64_t index, std::int32_t* tokens) override {
    const MixtureOrder::Drawn drawn = order_.draw(index);
    sources_[drawn.source].data->read(drawn.index, tokens);
  }
  void read_rows(std::uint64_t index, const SampleRows& rows) override {
    const MixtureOrder::Drawn drawn = order_.draw(index);
    sources_[drawn.source].data->read_rows(drawn.index, rows);
  }
  bool has_documents() const override { return sources_[0].data->has_documents(); }
  std::uint64_t samples() const override {
    std::uint64_t sum = 0;
    for (const MixtureSource& source : sources_) sum += source.data->samples();
    return sum;
  }
  std::string tokenizer() const override { return sources_[0].data->tokenizer(); }

  /// The facts of the first source have the names that they have without others, so that a run on
  /// one file can resume on a mixture that begins with it.
  Facts identity() const override {
    Facts facts = sources_[0].data->identity();
    for (std::size_t k = 1; k < sources_.size(); ++k)
      for (const Fact& fact : sources_[k].data->identity())
        if (fact.name != "dataset")  // all are of one kind
          facts.push_back({text(fact.name, of_source, k + 1), fact.value});
    return facts;
  }
  Facts choices(std::uint64_t samples) override { return order_.facts(samples); }
  void continue_from(std::uint64_t samples, const Facts& before) override {
    order_.continue_from(samples, before);
  }

  std::vector<SourceUse> sources(std::uint64_t samples) override {
    const std::vector<double> weights = weights_of(sources_);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const std::vector<std::uint64_t> taken = order_.taken(samples);
    std::vector<SourceUse> uses;
    for (std::size_t k = 0; k < sources_.size(); ++k)
      uses.push_back({sources_[k].file.path, weights[k] / sum, static_cast<std::int64_t>(taken[k]),
                      sources_[k].data->samples(), sources_[k].data->padding()});
    return uses;
  }

 private:
  MixtureOrder order_;
  std::vector<MixtureSource> sources_;
};

}  // namespace

std::unique_ptr<Dataset> make_mixture(std::vector<MixtureSource> sources, std::uint64_t seed) {
  const MixtureSource& first = sources[0];
  for (const MixtureSource& source : sources) {
    require(source.data->tokenizer() == first.data->tokenizer(), "'", source.file.path,
            "' has tokens of the tokenizer ", source.data->tokenizer(), ", and '", first.file.path,
            "' of ", first.data->tokenizer(), "; expected files of one tokenizer");
    require(source.data->tokenizer() != unknown_tokenizer ||
                vocabulary_of(source) == vocabulary_of(first),
            "'", source.file.path, "' has a vocabulary of ", vocabulary_of(source), ", and '",
            first.file.path, "' of ", vocabulary_of(first), ", and neither names its tokenizer; ",
            "expected files of one tokenizer");
  }
  return std::make_unique<Mixture>(std::move(sources), seed);
}

}  // namespace ostrakon::data
