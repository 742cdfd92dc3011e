//! API tokens: their expiry, deletion and use, and who may make and see them.

use super::*;

#[tokio::test]
async fn an_expired_token_does_not_authenticate() {
    let test = TestIdentity::new().await;
    let expiry = Timestamp::now().after(Duration::from_secs(60));
    let made = test
        .identity
        .create_token(&test.admin, test.admin.user.id, "t".to_owned(), vec![TokenScope::Mcp], Some(expiry))
        .await;
    let headers = bearer(made.unwrap().1.reveal());
    assert_eq!(test.identity.authenticate(&headers).unwrap().scopes(), [TokenScope::Mcp]);
    assert!(test.identity.authenticate_at(&headers, expiry.before(Duration::from_micros(1))).is_some());
    assert!(test.identity.authenticate_at(&headers, expiry).is_none());
    let past = test
        .identity
        .create_token(&test.admin, test.admin.user.id, "t".to_owned(), Vec::new(), Some(Timestamp::now()))
        .await;
    assert!(matches!(past, Err(IdentityError::Invalid { field: "expires_at", .. })));
    test.close().await;
}

#[tokio::test]
async fn a_token_that_expires_makes_none_that_outlives_it() {
    let test = TestIdentity::new().await;
    let expiry = Timestamp::now().after(Duration::from_secs(60));
    let made =
        test.identity.create_token(&test.admin, test.admin.user.id, "t".to_owned(), Vec::new(), Some(expiry)).await;
    let caller = test.identity.authenticate(&bearer(made.unwrap().1.reveal())).unwrap();
    let (sooner, later) = (expiry.before(Duration::from_secs(30)), expiry.after(Duration::from_secs(1)));
    for (asked, got) in [(None, expiry), (Some(later), expiry), (Some(sooner), sooner)] {
        let (token, _) =
            test.identity.create_token(&caller, caller.user.id, "t".to_owned(), Vec::new(), asked).await.unwrap();
        assert_eq!(token.expires_at, Some(got), "{asked:?}");
    }
    let (token, _) = test.token(&test.admin).await;
    assert_eq!(token.expires_at, None, "from one that does not expire");
    test.close().await;
}

#[tokio::test]
async fn a_deleted_token_is_rejected_at_once_and_for_good() {
    let test = TestIdentity::new().await;
    let (token, headers) = test.token(&test.admin).await;
    assert!(test.identity.authenticate(&headers).is_some());
    test.identity.delete_token(&test.admin, token.id).await.unwrap();
    assert!(test.identity.authenticate(&headers).is_none());
    let again = test.identity.delete_token(&test.admin, token.id).await;
    assert!(matches!(again, Err(IdentityError::Missing("token"))));
    let test = test.reopened().await;
    assert!(test.identity.authenticate(&headers).is_none(), "noting its last use brought it back");
    test.close().await;
}

#[tokio::test]
async fn a_user_has_a_hundred_tokens_and_no_more() {
    let test = TestIdentity::new().await;
    // The administrator's file holds the first.
    for _ in 1..100 {
        test.token(&test.admin).await;
    }
    let more = test.identity.create_token(&test.admin, test.admin.user.id, "t".to_owned(), Vec::new(), None).await;
    assert!(matches!(more, Err(IdentityError::TooManyTokens(100))));
    test.close().await;
}

#[tokio::test]
async fn a_tokens_last_use_is_known_and_survives_a_restart() {
    let test = TestIdentity::new().await;
    let (token, headers) = test.token(&test.admin).await;
    assert_eq!(token.last_used_at, None);
    let first = Timestamp::now();
    let second = first.after(Duration::from_secs(30));
    test.identity.authenticate_at(&headers, first);
    test.identity.authenticate_at(&headers, second);
    let used = |test: &TestIdentity| test.identity.token(&test.admin, token.id).unwrap().last_used_at;
    assert_eq!(used(&test), Some(second));
    let test = test.reopened().await;
    assert_eq!(used(&test), Some(first), "written at most once a minute");
    test.close().await;
}

#[tokio::test]
async fn the_token_of_another_user_is_not_found() {
    let test = TestIdentity::new().await;
    test.user("ada", &[]).await;
    let (token, _) = test.token(&test.admin).await;
    let (ada, _) = test.login("ada").await;
    assert!(test.identity.token(&ada, token.id).is_none());
    assert!(matches!(test.identity.delete_token(&ada, token.id).await, Err(IdentityError::Missing("token"))));
    test.close().await;
}

#[tokio::test]
async fn whoever_manages_users_makes_and_sees_tokens_of_users_who_may_do_no_more() {
    let test = TestIdentity::new().await;
    let clerk: Permissions = [Permission::ManageUsers].into_iter().collect();
    test.identity.create_role(&test.admin, "clerk".parse().unwrap(), clerk).await.unwrap();
    test.user("clara", &["clerk"]).await;
    let (clara, _) = test.login("clara").await;
    let bot =
        NewUser { name: "bot".parse().unwrap(), password: None, roles: Vec::new(), groups: Vec::new(), active: true };
    let bot = test.identity.create_user(&clara, bot).await.unwrap();
    let create = |caller: &Caller, user| {
        let (identity, caller) = (test.identity.clone(), caller.clone());
        async move { identity.create_token(&caller, user, "t".to_owned(), Vec::new(), None).await }
    };
    let (token, secret) = create(&clara, bot.id).await.unwrap();
    let caller = test.identity.authenticate(&bearer(secret.reveal())).unwrap();
    assert_eq!((caller.user.id, token.user_id), (bot.id, bot.id));
    assert_eq!(test.identity.tokens(&clara, bot.id).unwrap().len(), 1);
    assert!(test.identity.token(&clara, token.id).is_some());
    let admin = test.admin.user.id;
    assert!(matches!(create(&clara, admin).await, Err(IdentityError::BeyondUser(_))));
    assert!(matches!(test.identity.tokens(&clara, admin), Err(IdentityError::BeyondUser(_))));
    let of_admin = test.identity.tokens(&test.admin, admin).unwrap()[0].id;
    assert!(test.identity.token(&clara, of_admin).is_none());
    assert!(matches!(create(&caller, admin).await, Err(IdentityError::Missing("user"))), "it manages no users");
    assert!(matches!(create(&clara, UserId::new()).await, Err(IdentityError::Missing("user"))));
    test.close().await;
}

#[tokio::test]
async fn a_bad_token_is_not_made_good_by_a_cookie() {
    let test = TestIdentity::new().await;
    test.user("ada", &[]).await;
    let (_, mut headers) = test.login("ada").await;
    assert!(test.identity.authenticate(&headers).is_some());
    headers.insert(AUTHORIZATION, "Bearer svc_wrong".parse().unwrap());
    assert!(test.identity.authenticate(&headers).is_none());
    test.close().await;
}
