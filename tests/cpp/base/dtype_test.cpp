#include "base/dtype.h"

#include <set>

#include <gtest/gtest.h>

namespace joinsum {
namespace {

std::vector<DType> all() {
  std::vector<DType> out;
  for (const std::string& name : dtype_names()) out.push_back(*dtype_from_name(name));
  return out;
}

std::set<std::string> names_in(bool (*belongs)(DType)) {
  std::set<std::string> out;
  for (const DType dtype : all()) {
    if (belongs(dtype)) out.insert(name_of(dtype));
  }
  return out;
}

std::set<std::string> names_in(Domain domain) {
  std::set<std::string> out;
  for (const DType dtype : all()) {
    if (contains(domain, dtype)) out.insert(name_of(dtype));
  }
  return out;
}

using Names = std::set<std::string>;

const Names kIntegers{"u8", "i8", "i16", "i32", "i64"};
const Names kRealFloats{"f16", "bf16", "f32", "f64"};

TEST(DTypes, NamesReadBackAsTheSameDtype) {
  EXPECT_EQ(all().size(), 12u);
  for (const DType dtype : all()) EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype) << name_of(dtype);
  EXPECT_EQ(name_of(DType::kBFloat16), "bf16");
  EXPECT_EQ(name_of(DType::kComplex128), "c128");
}

TEST(DTypes, AnUnknownNameIsNoDtype) {
  EXPECT_EQ(dtype_from_name("float32"), std::nullopt);
  EXPECT_EQ(dtype_from_name("F32"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(DTypes, ANameEndsWithTheBitsOfAnElement) {
  for (const DType dtype : all()) {
    if (dtype == DType::kBool) continue;
    const std::string& name = name_of(dtype);
    EXPECT_EQ(std::stoll(name.substr(name.find_first_of("0123456789"))), 8 * byte_size(dtype)) << name;
  }
  EXPECT_EQ(byte_size(DType::kBool), 1);
}

TEST(DTypes, EachIsOfOneKind) {
  EXPECT_EQ(names_in(is_integer), kIntegers);
  EXPECT_EQ(names_in(is_real_float), kRealFloats);
  EXPECT_EQ(names_in(is_half_float), (Names{"f16", "bf16"}));
  EXPECT_EQ(names_in(is_complex), (Names{"c64", "c128"}));
}

TEST(DTypes, ADomainIsASetOfThem) {
  Names floating = kRealFloats, ordered = kRealFloats;
  floating.insert({"c64", "c128"});
  ordered.insert(kIntegers.begin(), kIntegers.end());
  ordered.insert("bool");
  EXPECT_EQ(names_in(Domain::kReal), kRealFloats);
  EXPECT_EQ(names_in(Domain::kFloating), floating);
  EXPECT_EQ(names_in(Domain::kOrdered), ordered);
  EXPECT_EQ(names_in(Domain::kAny).size(), all().size());
}

}  // namespace
}  // namespace joinsum
