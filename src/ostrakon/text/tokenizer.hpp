// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::texts {

/// Makes token ids of text, and text of ids, as the file that describes it says. What the file asks
/// for and is not implemented is refused by its name when it is opened: ids are those of the
/// tokenizer's own library, or there are none. Any number of threads may use one at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The name that token files, checkpoints and weights keep: the kind of file and a checksum of
  /// its content, such as "tokenizer.json-3f2a9c01d4e5b6f7"; or "byte".
  virtual const std::string& name() const = 0;
  /// Every id is less than this: the largest id, added tokens included, and one.
  virtual std::int64_t vocabulary() const = 0;

  /// Encodes texts one after the other, and remembers words that it has seen. Used by one thread.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    /// Appends the ids of `text`, UTF-8, without those that a post-processor puts around it.
    /// Special tokens that occur in it by their text become their ids if `finds_special`, else
    /// they are text as any other (data is not to end a document). Throws Error where `text` is
    /// not UTF-8, naming the offset, unless the tokenizer takes bytes.
    virtual void encode(std::string_view text, bool finds_special,
                        std::vector<std::int32_t>& ids) = 0;
  };
  virtual std::unique_ptr<Encoder> encoder() const = 0;

  /// Ids that a post-processor puts before and after a single text.
  struct Around {
    std::vector<std::int32_t> before, after;
  };
  virtual Around around() const = 0;

  /// The tokens that begin and end a text or a document, as the files beside the tokenizer say;
  /// empty where they do not. A text that is generated ends with any of `ends`, which are those of
  /// generation_config.json, too.
  virtual std::optional<std::int32_t> begin() const = 0;
  virtual std::optional<std::int32_t> end() const = 0;
  virtual std::vector<std::int32_t> ends() const = 0;

  /// The id of a token by its text in the file, and the reverse (empty for an id without a token).
  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  virtual std::string token(std::int32_t id) const = 0;
  virtual bool is_special(std::int32_t id) const = 0;

  /// Returns the text of ids, as the tokenizer's own library does; special tokens by their text,
  /// unless they are skipped. Throws Error for an id outside of the vocabulary.
  virtual std::string decode(const std::int32_t* ids, std::int64_t count,
                             bool skips_special) const = 0;

  /// Makes text of ids that come one by one: whole characters as soon as all of their bytes are
  /// there. All that it returned, with what finish() returns, is decode() of all ids.
  class Stream {
   public:
    virtual ~Stream() = default;
    virtual std::string next(std::int32_t id) = 0;
    virtual std::string finish() = 0;
  };
  virtual std::unique_ptr<Stream> stream(bool skips_special) const = 0;
};

/// Opens a tokenizer: "byte", the folder of a model (its tokenizer.json or, if there is none, its
/// tokenizer.model), or one of these files, or another one that ends with .json or .model. Throws
/// Error that names the file and what of it is not implemented, or wrong.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

}  // namespace ostrakon::texts
