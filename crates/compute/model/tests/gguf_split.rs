//! Split models, folders of models, and files that are not whole.

// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

use motet_model::gguf::{Gguf, GgufError, find_model, open_model};
use motet_testkit::{GgufBuilder, TinyModel, WeightType, tiny_model};
use tempfile::TempDir;

fn part_name(stem: &str, number: usize, count: usize) -> String {
    format!("{stem}-{number:05}-of-{count:05}.gguf")
}

fn model(weights: WeightType) -> GgufBuilder {
    TinyModel { weights, ..TinyModel::default() }.builder()
}

/// A folder with the tiny model in three parts.
fn split_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_parts(folder.path(), "tiny", &model(WeightType::F32));
    folder
}

fn write_parts(folder: &Path, stem: &str, model: &GgufBuilder) -> Vec<PathBuf> {
    let write = |(index, part): (usize, GgufBuilder)| {
        let path = folder.join(part_name(stem, index + 1, 3));
        fs::write(&path, part.build()).unwrap();
        path
    };
    model.split(3).into_iter().enumerate().map(write).collect()
}

/// The whole model's tensors are in `gguf`, bit for bit.
fn assert_whole(gguf: &Gguf) {
    let whole = Gguf::from_bytes("whole", tiny_model(&TinyModel::default())).unwrap();
    assert_eq!(gguf.tensors().len(), whole.tensors().len());
    for info in whole.tensors() {
        let (ours, theirs) = (gguf.tensor(info.name()).unwrap(), whole.tensor(info.name()).unwrap());
        assert_eq!(
            (ours.shape, ours.ty, ours.data),
            (theirs.shape, theirs.ty, theirs.data),
            "{}",
            info.name()
        );
    }
    assert_eq!(gguf.require_u32("llama.block_count").unwrap(), 2);
}

/// Opening `path` fails with a message that has all of `parts`.
fn check_refused(path: &Path, parts: &[&str]) {
    let error = open_model(path).expect_err("a refusal").to_string();
    assert!(!error.contains('\n'), "{error}");
    for part in parts {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}

#[test]
fn any_part_or_the_folder_is_the_whole_model() {
    let folder = split_folder();
    for number in 1..=3 {
        let path = folder.path().join(part_name("tiny", number, 3));
        let gguf = Gguf::open(&path).unwrap();
        assert_whole(&gguf);
        assert_eq!((gguf.path(), gguf.files().len()), (path.as_path(), 3));
    }
    assert_whole(&open_model(folder.path()).unwrap());
    assert_eq!(find_model(folder.path()).unwrap(), folder.path().join(part_name("tiny", 1, 3)));
}

#[test]
fn a_set_of_one_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(part_name("tiny", 1, 1));
    for bytes in [tiny_model(&TinyModel::default()), model(WeightType::F32).split(1)[0].build()] {
        fs::write(&path, bytes).unwrap();
        assert_whole(&Gguf::open(&path).unwrap());
        assert_whole(&open_model(folder.path()).unwrap());
    }
}

#[test]
fn missing_parts_are_named() {
    let folder = split_folder();
    fs::remove_file(folder.path().join(part_name("tiny", 2, 3))).unwrap();
    for number in [1, 3] {
        check_refused(
            &folder.path().join(part_name("tiny", number, 3)),
            &["tiny-00002-of-00003.gguf is missing"],
        );
    }
    check_refused(folder.path(), &["tiny-00002-of-00003.gguf is missing"]);
}

#[test]
fn parts_that_do_not_belong_are_named() {
    let second = |folder: &TempDir| folder.path().join(part_name("tiny", 2, 3));
    let with_second = |bytes: Vec<u8>| {
        let folder = split_folder();
        fs::write(second(&folder), bytes).unwrap();
        folder
    };
    let check = |bytes: Vec<u8>, parts: &[&str]| {
        let folder = with_second(bytes);
        check_refused(folder.path(), &[&["tiny-00002-of-00003.gguf: "], parts].concat());
    };
    let f32_parts = model(WeightType::F32).split(3);
    check(f32_parts[2].build(), &["split.no, value at byte", "the name says part 2, the file says part 3"]);
    check(
        f32_parts[1].clone().set("split.count", 4_u16).build(),
        &["the name says 3 parts, the file says 4"],
    );
    check(f32_parts[1].clone().without("split.count").build(), &["the file says no count"]);
    check(
        f32_parts[1].clone().set("split.tensors.count", 7_i32).build(),
        &["split.tensors.count", "different models"],
    );
    check(f32_parts[1].clone().meta("general.name", "other").build(), &["general.name", "different models"]);
    check(model(WeightType::Q8_0).split(3)[1].build(), &["its weights are Q8_0", "different quantisations"]);
    check(tiny_model(&TinyModel::default()), &["the file says no count"]);
    check(b"<!DOCTYPE html>".to_vec(), &["magic at byte 0", "web page"]);
}

#[test]
fn the_declared_number_of_tensors_is_checked() {
    let folder = split_folder();
    for (index, part) in model(WeightType::F32).split(3).into_iter().enumerate() {
        let path = folder.path().join(part_name("tiny", index + 1, 3));
        fs::write(path, part.set("split.tensors.count", 21_i32).build()).unwrap();
    }
    check_refused(folder.path(), &["split.tensors.count, value at byte", "21 tensors declared, 20 found"]);
}

#[test]
fn a_tensor_in_two_parts_is_refused() {
    let folder = split_folder();
    let parts = model(WeightType::F32).split(3);
    let double = parts[1].clone().tensor("token_embd.weight", &[1], 0, vec![0; 4]);
    let last = parts[2].clone().without_tensor("output_norm.weight");
    fs::write(folder.path().join(part_name("tiny", 2, 3)), double.build()).unwrap();
    fs::write(folder.path().join(part_name("tiny", 3, 3)), last.build()).unwrap();
    check_refused(
        folder.path(),
        &["tiny-00002-of-00003.gguf: tensor token_embd.weight", "duplicate tensor name", "00001-of-00003"],
    );
}

#[test]
fn a_part_under_another_name_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    fs::write(&path, model(WeightType::F32).split(3)[1].build()).unwrap();
    check_refused(&path, &["part 2 of 3 of a split model", "-of-00003.gguf"]);
    let impossible = folder.path().join("tiny-00004-of-00003.gguf");
    fs::write(&impossible, "").unwrap();
    check_refused(&impossible, &["part 4 of 3, which cannot be"]);
}

#[cfg(unix)]
#[test]
fn parts_may_be_links_into_a_cache() {
    let (blobs, snapshot) = (split_folder(), tempfile::tempdir().unwrap());
    for number in 1..=3 {
        let blob = blobs.path().join(format!("blob{number}"));
        fs::rename(blobs.path().join(part_name("tiny", number, 3)), &blob).unwrap();
        std::os::unix::fs::symlink(&blob, snapshot.path().join(part_name("tiny", number, 3))).unwrap();
    }
    assert_whole(&open_model(snapshot.path()).unwrap());
    assert_whole(&Gguf::open(&snapshot.path().join(part_name("tiny", 3, 3))).unwrap());
}

#[test]
fn pieces_cut_at_arbitrary_bytes_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = tiny_model(&TinyModel::default());
    for name in ["tiny.gguf.part1of2", "tiny.gguf-split-a"] {
        let path = folder.path().join(name);
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        check_refused(&path, &[name, "cut at arbitrary bytes", "cat NAME.gguf.part* > NAME.gguf"]);
    }
    check_refused(folder.path(), &["only pieces of one that was cut at arbitrary bytes"]);
}

#[test]
fn folders() {
    let folder = tempfile::tempdir().unwrap();
    check_refused(folder.path(), &["no GGUF file in this folder"]);
    fs::write(folder.path().join("model.safetensors"), "").unwrap();
    check_refused(folder.path(), &["it holds safetensors, which Motet does not read yet"]);
    fs::write(folder.path().join("mmproj-tiny.gguf"), "").unwrap();
    fs::create_dir(folder.path().join("folder.gguf")).unwrap();
    fs::write(folder.path().join("tiny.GGUF"), tiny_model(&TinyModel::default())).unwrap();
    assert_whole(&open_model(folder.path()).unwrap());
    write_parts(folder.path(), "big", &model(WeightType::F32));
    check_refused(folder.path(), &["2 models in this folder", "big-*-of-00003.gguf, tiny.GGUF"]);
    check_refused(&folder.path().join("folder.gguf"), &["no GGUF file in this folder"]);
    check_refused(&folder.path().join("absent.gguf"), &["absent.gguf: cannot open: "]);
    assert!(matches!(Gguf::open(folder.path()), Err(GgufError::Selection { .. })));
}

#[test]
fn a_file_that_changes_while_open_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    fs::write(&path, tiny_model(&TinyModel::default())).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    gguf.check_unchanged().unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1000).unwrap();
    let error = gguf.check_unchanged().unwrap_err().to_string();
    assert!(error.ends_with("the file changed while it was being read; copy it again and retry"), "{error}");
}
