// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/packed_dataset.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/data/packing.hpp>
#include <ostrakon/data/sample_order.hpp>
#include <utility>
#include <vector>

namespace ostrakon::data {
namespace {

class PackedDataset : public Dataset {
 public:
  PackedDataset(TokenFile file, Packing packing, EpochOrder order, std::int64_t sequence_length)
      : Dataset(sequence_length + 1),
        file_(std::move(file)),
        packing_(std::move(packing)),
        order_(order),
        tokens_(static_cast<std::size_t>(length())),
        counts_(static_cast<std::size_t>(length())),
        targets_(static_cast<std::size_t>(sequence_length)),
        begins_(static_cast<std::size_t>(sequence_length)) {}

  void read(std::uint64_t index, std::int32_t* tokens) override {
    read_rows(index, {tokens, targets_.data(), begins_.data()});
    tokens[length() - 1] = std::max(targets_.back(), 0);
  }
  void read_rows(std::uint64_t index, const SampleRows& rows) override {
    std::int64_t at = 0;
    for (const Packing::Piece& piece : packing_.pieces(order_(index))) {
      file_.read(piece.begin, piece.places + 1, tokens_.data(), counts_.data());
      for (std::int64_t i = 0; i < piece.places; ++i) {
        const auto k = static_cast<std::size_t>(i);
        rows.tokens[at + i] = tokens_[k];
        rows.targets[at + i] = counts_[k + 1] == 0 ? not_counted : tokens_[k + 1];
        rows.document_begins[at + i] = static_cast<std::int32_t>(at);
      }
      at += piece.places;
    }
    for (; at + 1 < length(); ++at) {
      rows.tokens[at] = 0;
      rows.targets[at] = not_counted;
      rows.document_begins[at] = static_cast<std::int32_t>(at);
    }
  }
  bool has_documents() const override { return true; }
  std::uint64_t samples() const override { return packing_.samples(); }
  std::string tokenizer() const override { return file_.info().tokenizer; }
  Facts identity() const override { return file_.info().identity(); }
  std::optional<double> bytes_per_token() const override {
    return file_.info().has_mask ? std::nullopt : file_.info().bytes_per_token();
  }
  double padding() const override {
    const double places =
        static_cast<double>(packing_.samples()) * static_cast<double>(length() - 1);
    return 1.0 - static_cast<double>(packing_.used_places()) / places;
  }

 private:
  TokenFile file_;
  Packing packing_;
  EpochOrder order_;
  // A document, and what read() has no use for.
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint8_t> counts_;
  std::vector<std::int32_t> targets_, begins_;
};

}  // namespace

std::unique_ptr<Dataset> open_packed(TokenFile file, Split split, std::int64_t sequence_length,
                                     std::uint64_t seed) {
  Packing packing(file.document_offsets(), sequence_length);
  require(packing.samples() > 0, "token file '", file.path(), "' has ", file.info().document_count,
          " documents of one token each; data.documents = separate needs one of at least 2 tokens");
  const EpochOrder order = split == Split::training ? EpochOrder::shuffled(packing.samples(), seed)
                                                    : EpochOrder::fixed(packing.samples());
  return std::make_unique<PackedDataset>(std::move(file), std::move(packing), order,
                                         sequence_length);
}

}  // namespace ostrakon::data
