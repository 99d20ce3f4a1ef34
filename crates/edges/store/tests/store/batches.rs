//! Files and batches.

use motet_store::{
    Batch, BatchBounds, BatchCounts, BatchEnd, BatchId, BatchStatus, DataOwner, Deleted, FileBounds, FileId,
    FileInfo, NewBatch, Order, Owner, Page, Scope, Store, StoreError, User, UserChange, Whose,
};

use crate::{
    Database,
    identity::{member, owner},
    keys::key,
};

const ROOMY: FileBounds = FileBounds { files: 100, bytes: 1_000 };
const FEW: BatchBounds = BatchBounds { of_user: 2, of_all: 3 };

fn owned_by(user: &User) -> DataOwner {
    DataOwner { org: user.org.clone(), user: user.id.clone() }
}

fn file(owner: &DataOwner, bytes: u64, created_at: i64) -> FileInfo {
    let id = FileId::fresh().unwrap();
    let (name, purpose) = ("lines.jsonl".to_owned(), "batch".to_owned());
    FileInfo { id, owner: owner.clone(), name, purpose, bytes, created_at, expires_at: None }
}

async fn added(store: &Store, owner: &DataOwner, bytes: u64, at: i64) -> FileInfo {
    let file = file(owner, bytes, at);
    store.add_file(&file, ROOMY).await.unwrap();
    file
}

async fn batch(store: &Store, owner: &DataOwner, input: &FileId, now: i64) -> Result<Batch, StoreError> {
    let endpoint = "/v1/completions";
    let metadata = Some("{\"a\":\"b\"}");
    let new = NewBatch { owner, key: None, home: "here", endpoint, input, metadata, expires_at: now + 100 };
    store.add_batch(&new, FEW, now).await
}

pub(crate) async fn files_are_their_owners_and_bounded(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let bob = member(&store, &ada.org, "bob").await;
    let (adas, bobs, nobodys) = (owned_by(&ada), owned_by(&bob), DataOwner::nobody());
    let mut files = Vec::new();
    for at in [5, 1, 3, 3, 2] {
        files.push(added(&store, &adas, 10, at).await);
    }
    let bobs_file = added(&store, &bobs, 10, 4).await;
    added(&store, &nobodys, 900, 4).await;
    files.sort_by(|a, b| (a.created_at, a.id.as_str()).cmp(&(b.created_at, b.id.as_str())));

    for (order, limit) in [(Order::Ascending, 2), (Order::Descending, 2), (Order::Ascending, 100)] {
        let mut listed: Vec<FileInfo> = Vec::new();
        loop {
            let after = listed.last().map(|file| (file.created_at, file.id.as_str().to_owned()));
            let after = after.as_ref().map(|(at, id)| (*at, id.as_str()));
            let page = store.files(&adas, Some("batch"), Page { after, limit, order }).await.unwrap();
            if page.is_empty() {
                break;
            }
            listed.extend(page);
        }
        if order == Order::Descending {
            listed.reverse();
        }
        assert_eq!(listed, files, "{order:?} {limit}");
    }
    let page = Page { after: None, limit: 9, order: Order::Ascending };
    assert_eq!(store.files(&adas, Some("user_data"), page).await.unwrap(), []);

    assert_eq!(store.file(&adas, &bobs_file.id).await.unwrap(), None);
    assert_eq!(store.delete_file(&adas, &bobs_file.id).await.unwrap(), Deleted::Missing);
    assert_eq!(store.file(&bobs, &bobs_file.id).await.unwrap(), Some(bobs_file.clone()));
    // 60 bytes of the organisation's are there.
    let check = async |bytes, files, fits: bool| {
        let bounds = FileBounds { files, bytes: 100 };
        let room = store.check_room_for_file(&ada.org, bytes, bounds).await;
        let adding = store.add_file(&file(&bobs, bytes, 9), bounds).await;
        for outcome in [room, adding] {
            match outcome {
                Ok(()) => assert!(fits, "{bytes} {files}"),
                Err(error) => assert!(!fits && matches!(error, StoreError::TooMany { .. }), "{error}"),
            }
        }
    };
    check(41, 9, false).await;
    check(1, 6, false).await;
    check(40, 7, true).await;
    assert_eq!(store.delete_file(&bobs, &bobs_file.id).await.unwrap(), Deleted::Gone);
    assert!(!store.has_file(&bobs_file.id).await.unwrap() && store.has_file(&files[0].id).await.unwrap());
}

pub(crate) async fn a_batch_takes_its_steps_once(database: Database) {
    let store = database.open().await;
    let ada = owned_by(&owner(&store).await);
    let nobody = DataOwner::nobody();
    let input = added(&store, &ada, 1, 0).await.id;
    let one = batch(&store, &ada, &input, 10).await.unwrap();
    assert_eq!(
        (one.status, one.counts, one.times.created),
        (BatchStatus::Validating, BatchCounts::default(), 10)
    );
    assert_eq!(store.batch(&nobody, &one.id).await.unwrap(), None);
    assert!(!store.cancel_batch(&nobody, &one.id, 11).await.unwrap());
    assert_eq!(store.delete_file(&ada, &input).await.unwrap(), Deleted::InUse);

    assert!(!store.finalize_batch(&one.id, 11).await.unwrap());
    assert!(store.begin_batch(&one.id, 7, 12).await.unwrap());
    assert!(!store.begin_batch(&one.id, 7, 13).await.unwrap());
    let counts = BatchCounts { total: 7, completed: 5, failed: 1 };
    assert_eq!(store.note_progress(&one.id, counts).await.unwrap(), Some(BatchStatus::InProgress));
    assert!(store.finalize_batch(&one.id, 14).await.unwrap());
    assert!(!store.cancel_batch(&ada, &one.id, 15).await.unwrap(), "too late");
    let output = FileInfo { id: one.id.output_file(), ..file(&ada, 100, 16) };
    let mut end = BatchEnd { status: BatchStatus::Cancelled, counts, output: Some(&output), errors: None };
    assert!(!store.end_batch(&one.id, &end, 16).await.unwrap());
    assert!(!store.has_file(&output.id).await.unwrap(), "neither");
    end.status = BatchStatus::Completed;
    assert!(store.end_batch(&one.id, &end, 16).await.unwrap());
    assert!(!store.end_batch(&one.id, &end, 17).await.unwrap());
    let done = store.batch(&ada, &one.id).await.unwrap().unwrap();
    assert_eq!((done.status, done.counts), (BatchStatus::Completed, counts));
    assert_eq!((done.output, done.errors), (Some(output.id.clone()), None));
    let times = done.times;
    assert_eq!((times.in_progress, times.finalizing, times.completed), (Some(12), Some(14), Some(16)));
    assert_eq!(store.file(&ada, &output.id).await.unwrap(), Some(output.clone()));
    assert_eq!(BatchId::of_file(output.id.as_str()), Some(one.id.clone()));
    assert_eq!(BatchId::of_file(input.as_str()), None);

    let two = batch(&store, &ada, &input, 20).await.unwrap();
    assert!(store.cancel_batch(&ada, &two.id, 21).await.unwrap());
    assert!(!store.begin_batch(&two.id, 1, 22).await.unwrap());
    assert!(!store.fail_batch(&two.id, "[]", 22).await.unwrap());
    let three = batch(&store, &ada, &input, 30).await.unwrap();
    assert!(store.fail_batch(&three.id, "[1]", 31).await.unwrap());
    assert_eq!(store.batch(&ada, &three.id).await.unwrap().unwrap().problems.as_deref(), Some("[1]"));
    let left = store.unfinished_batches("here", Whose::Accounts, 9).await.unwrap();
    assert_eq!(left.iter().map(|batch| &batch.id).collect::<Vec<_>>(), [&two.id]);
    assert_eq!(store.unfinished_batches("there", Whose::Accounts, 9).await.unwrap(), []);
    assert_eq!(store.unfinished_batches("here", Whose::Nobody, 9).await.unwrap(), []);
    assert_eq!(store.forget_batches(31).await.unwrap(), 1);
    assert_eq!(store.batch_status(&one.id).await.unwrap(), None);
}

pub(crate) async fn batches_that_wait_are_bounded(database: Database) {
    let store = database.open().await;
    let ada = owned_by(&owner(&store).await);
    let nobody = DataOwner::nobody();
    let input = FileId::fresh().unwrap();
    let first = batch(&store, &ada, &input, 1).await.unwrap();
    batch(&store, &ada, &input, 2).await.unwrap();
    let refused = batch(&store, &ada, &input, 3).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooMany { limit: 2, .. }), "{refused}");
    batch(&store, &nobody, &input, 4).await.unwrap();
    let refused = batch(&store, &nobody, &input, 5).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooMany { limit: 3, .. }), "{refused}");
    assert!(store.fail_batch(&first.id, "[]", 6).await.unwrap());
    batch(&store, &nobody, &input, 7).await.unwrap();
    let page = Page { after: None, limit: 1, order: Order::Descending };
    assert_eq!(store.batches(&ada, page).await.unwrap()[0].times.created, 2);
    let page = Page { after: Some((1, first.id.as_str())), limit: 9, order: Order::Ascending };
    assert_eq!(store.batches(&ada, page).await.unwrap().len(), 1);
}

pub(crate) async fn files_go_when_their_time_or_their_user_has_gone(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let bob = member(&store, &ada.org, "bob").await;
    let (adas, bobs) = (owned_by(&ada), owned_by(&bob));
    let lasting = added(&store, &adas, 1, 0).await;
    let passing = FileInfo { expires_at: Some(50), ..file(&adas, 1, 0) };
    let read = FileInfo { expires_at: Some(50), ..file(&adas, 1, 0) };
    for file in [&passing, &read] {
        store.add_file(file, ROOMY).await.unwrap();
    }
    batch(&store, &adas, &read.id, 0).await.unwrap();
    let left = added(&store, &bobs, 1, 0).await;
    let to_drop = async |now| {
        let mut ids: Vec<_> =
            store.files_to_drop(now).await.unwrap().into_iter().map(|file| file.id).collect();
        ids.sort();
        ids
    };
    assert_eq!(to_drop(49).await, []);
    assert_eq!(to_drop(50).await, std::slice::from_ref(&passing.id));
    store.delete_user(&ada.org, &bob.id).await.unwrap();
    let mut both = [passing.id.clone(), left.id.clone()];
    both.sort();
    assert_eq!(to_drop(50).await, both);
    assert!(store.has_file(&lasting.id).await.unwrap());
}

pub(crate) async fn earlier_work_goes_on_while_its_key_and_user_do(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let bob = member(&store, &ada.org, "bob").await;
    let bobs = owned_by(&bob);
    let made = key(&store, &bob, Some(100)).await;
    let stands = async |key, now| store.standing(&bobs, key, now).await.unwrap();
    let with_key = stands(Some(&made.info.id), 99).await.unwrap();
    assert!(with_key.scopes.has(Scope::Usage) && !with_key.scopes.has(Scope::Admin));
    assert_eq!(with_key.key_id(), Some(&made.info.id));
    assert_eq!(stands(Some(&made.info.id), 100).await, None);
    let without = stands(None, 0).await.unwrap();
    assert_eq!((without.user.clone(), without.key_id().is_none()), (bob.id.clone(), true));
    let adas_key = key(&store, &ada, None).await;
    assert_eq!(stands(Some(&adas_key.info.id), 0).await, None, "another user's key");
    store.revoke_key(Owner::User(&bob.org, &bob.id), &made.info.id, 1).await.unwrap();
    assert_eq!(stands(Some(&made.info.id), 2).await, None);
    let disable = UserChange { is_disabled: Some(true), ..UserChange::default() };
    store.update_user(&ada.org, &bob.id, &disable).await.unwrap();
    assert_eq!(stands(None, 3).await, None);
}
