#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "base/dims.h"
#include "runtime/storage/block_bytes.h"

namespace joinsum::runtime::storage {

class BlockStore;

/// How the elements of a block are stored: all of them in strides, or some with their indices (`sparse_array.h`).
enum class Format { kDense, kSparse };

/// The memory of one block as its store has it; released with its last handle. Views of the block share it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual Format format() const { return Format::kDense; }
  /// Shape, strides, offset and dtype of the block. Its elements may not be read: it may be on torch's meta device.
  virtual const at::Tensor& geometry() const = 0;
  /// Bytes of the elements that `view` describes.
  virtual int64_t bytes(const at::Tensor& view) const { return static_cast<int64_t>(view.nbytes()); }
  virtual at::Device device() const = 0;
  /// Equal for buffers that share memory; constant while the buffer lives, wherever its elements move.
  virtual const void* memory() const = 0;
  /// Whether nothing but this buffer's blocks refers to the memory: no other buffer, and no array outside the store.
  virtual bool exclusive() const = 0;
  /// The elements stay where they are between `pin` and as many calls of `unpin`.
  virtual void pin() {}
  virtual void unpin() noexcept {}
  /// The elements that `view`, the geometry or a view of it, describes; valid while the buffer is pinned.
  virtual at::Tensor array(const at::Tensor& view) = 0;
  /// The same, valid without a pin: the elements stay where they are as long as the result, or a view of it, lives.
  virtual at::Tensor export_array(const at::Tensor& view) { return array(view); }
};

/// What a site holds of the tuples of one box: elements of one dtype in some format, in the memory of a store. A
/// handle: copies and views share the memory. Its elements are reached through a Pin only, so that a store may page
/// them out, move them, or use another format.
class Block {
 public:
  Block() = default;
  explicit Block(std::shared_ptr<Buffer> buffer) : buffer_(std::move(buffer)) {}

  bool defined() const { return buffer_ != nullptr; }
  Format format() const { return buffer_->format(); }
  at::IntArrayRef shape() const { return geometry().sizes(); }
  int64_t elements() const { return geometry().numel(); }
  int64_t bytes() const { return buffer_->bytes(geometry()); }
  /// Whether the elements follow one another in memory, row-major.
  bool contiguous() const { return geometry().is_contiguous(); }
  /// Dtype and device.
  at::TensorOptions options() const { return geometry().options().device(buffer_->device()); }

  /// Indices [begin, begin + extent) of an axis; a view.
  Block narrow(int64_t axis, int64_t begin, int64_t extent) const;
  /// The same elements in row-major order in another shape; a view, or nothing where the strides permit none.
  std::optional<Block> viewed_as(at::IntArrayRef shape) const;

  Address address() const { return {buffer_->memory(), geometry().storage_offset()}; }
  const void* memory() const { return buffer_->memory(); }
  /// Whether the block is all of its memory, and nothing but its handles refers to that.
  bool exclusive() const { return !view_.defined() && buffer_->exclusive(); }
  /// Whether this is a handle of, or a view of, what `other` is a handle or a view of.
  bool shares_buffer(const Block& other) const { return buffer_ == other.buffer_; }
  /// Whether two blocks are the same elements in memory, in the same shape and strides.
  bool is_same_as(const Block& other) const;
  /// Appends numbers that are equal for two such blocks.
  void append_identity(std::vector<int64_t>& out) const;

  /// An array that shares the block's memory and may outlive all pins.
  at::Tensor export_array() const { return buffer_->export_array(geometry()); }

 private:
  friend class Pin;
  Block(std::shared_ptr<Buffer> buffer, at::Tensor view) : buffer_(std::move(buffer)), view_(std::move(view)) {}
  const at::Tensor& geometry() const { return view_.defined() ? view_ : buffer_->geometry(); }

  std::shared_ptr<Buffer> buffer_;
  at::Tensor view_;  ///< of the buffer's geometry; undefined for all of it
};

/// The elements of a block, which stay where they are while this lives. Copies of `array()` must not outlive it. It is
/// sparse where the block is.
class Pin {
 public:
  explicit Pin(const Block& block);
  ~Pin();
  Pin(Pin&&) noexcept = default;
  Pin& operator=(Pin&&) = delete;
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  const at::Tensor& array() const { return array_; }

 private:
  std::shared_ptr<Buffer> buffer_;
  at::Tensor array_;
};

/// A block of a sparse array; `released` is called when its last handle goes.
Block sparse_block(at::Tensor array, std::function<void(const Address&)> released = {});

/// A block of the caller's array, which no store counts. Writes through either are seen by the other.
Block block_of(at::Tensor array);

/// Copies the elements of `from` into `to`, of the same shape.
void copy(const Block& from, const Block& to);

/// Elements [begin, end) of the blocks, row-major, one block after another, for a message: the block itself where that
/// is all of one, else a flat one, which is a view where it can be, and a copy in `store` otherwise.
Block pack(const std::vector<Block>& blocks, int64_t begin, int64_t end, BlockStore& store);

/// Blocks of `shape`, one after another in `packed`, which has a multiple of their elements; views where they can be.
std::vector<Block> unpack(const Block& packed, const Dims& shape, BlockStore& store);

/// The elements of the blocks, one after another, in `shape`; the block itself where it is one, if a view can be it.
Block concatenate(const std::vector<Block>& blocks, const Dims& shape, BlockStore& store);

}  // namespace joinsum::runtime::storage
